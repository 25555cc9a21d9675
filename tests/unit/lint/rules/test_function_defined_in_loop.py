from tests.unit.lint.looking import fine, flagged

FLAGGED = [
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
