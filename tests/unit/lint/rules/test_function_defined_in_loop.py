from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def train_step(x):
        @tf.function  # <-
        def apply(x):
            with tf.GradientTape() as tape:
                loss = model(x)
            return tape.gradient(loss, model.variables)

        return apply(x)

    for x in data:
        train_step(x)
    """,
    """
    for fold in range(5):
        @tf.function  # <-
        def step(x):
            return x
    """,
    """
    while True:
        run = tf.function(forward)  # <-
        run(x)
    """,
    """
    for x in data:
        tf.function(lambda x: x * 2)(x)  # <-
    """,
    """
    for rate in rates:
        @tf.function(jit_compile=True)  # <-
        def step(x):
            return x * rate
    """,
]

FINE = [
    """
    def make(rate):
        @tf.function
        def step(x):
            return x * rate
        step(0.0)
        return step

    for rate in rates:
        steps.append(make(rate))
    """,
    """
    def once(x):
        @tf.function
        def apply(x):
            return x
        return apply(x)

    once(3)
    """,
    """
    @tf.function
    def step(x):
        return x

    for fold in range(5):
        step(fold)
    """,
    """
    def build():
        @tf.function
        def step(x):
            return x
        return step
    """,
    """
    for name, function in functions.items():
        compiled[name] = tf.function(function)
    """,
    """
    for fold in range(5):
        def step(x):
            return x
    """,
]

test_flagged = flagged("MF017", FLAGGED)
test_fine = fine("MF017", FINE)
