from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    for x in data:
        with tf.GradientTape(persistent=True) as tape:  # <-
            a, b = losses(x)
        first = tape.gradient(a, one)
        second = tape.gradient(b, two)
    """,
    """
    layer = layers.Dense(10)
    with tf.GradientTape(persistent=True) as tape:  # <-
        y = layer(x)
    print(tape.gradient(y, x))
    """,
    """
    def train(data):
        while True:
            with tf.GradientTape(True) as t:  # <-
                a, b = losses(next(data))
            update(t.gradient(a, one), t.gradient(b, two))
    """,
]

FINE = [
    """
    with tf.GradientTape(persistent=True) as tape:
        y = x * x
    print(tape.gradient(y, x), tape.gradient(y, x))
    """,
    """
    for x in data:
        with tf.GradientTape(persistent=True) as tape:
            a, b = losses(x)
        first = tape.gradient(a, one)
        second = tape.gradient(b, two)
        del tape
    """,
    """
    @tf.function
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            a, b = losses(x)
        first = tape.gradient(a, one)
        second = tape.gradient(b, two)
    """,
    """
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            a, b = losses(x)
        first = tape.gradient(a, one)
        second = tape.gradient(b, two)
        return first, second
    """,
    """
    for x in data:
        with tf.GradientTape() as tape:
            a = loss(x)
        first = tape.gradient(a, one)
    """,
]

test_flagged = flagged("MF027", FLAGGED)
test_fine = fine("MF027", FINE)
