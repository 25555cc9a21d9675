from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    def step(x):
        with tf.GradientTape(persistent=True) as tape:  # <-
            loss = tf.reduce_mean(model(x))
        return tape.gradient(loss, model.trainable_variables)
    """,
    """
    for x in data:
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:  # <-
            tape.watch(x)
            loss = tf.reduce_mean(model(x))
        gradients = tape.gradient(loss, x)
        del tape
    """,
    """
    x = tf.constant(3.0)
    with tf.GradientTape(persistent=True) as g:  # <-
        g.watch(x)
        y = x * x
    print(g.gradient(y, x))
    """,
]

FINE = [
    """
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            a, b = losses(x)
        first = tape.gradient(a, one)
        second = tape.gradient(b, two)
    """,
    """
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            parts = losses(x)
        return [tape.gradient(part, x) for part in parts]
    """,
    """
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(model(x))
        return helper(tape, loss)
    """,
    """
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(model(x))
        return tape.jacobian(loss, x)
    """,
    """
    @tf.function
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(model(x))
        return tape.gradient(loss, x)
    """,
]

FIXED = [
    (
        """
        def step(x):
            with tf.GradientTape(persistent=True) as tape:  # one
                loss = tf.reduce_mean(model(x))
            return tape.gradient(loss, x)
        """,
        """
        def step(x):
            with tf.GradientTape() as tape:  # one
                loss = tf.reduce_mean(model(x))
            return tape.gradient(loss, x)
        """,
    ),
    (
        """
        def step(x):
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                loss = tf.reduce_mean(model(x))
            return tape.gradient(loss, x)
        """,
        """
        def step(x):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                loss = tf.reduce_mean(model(x))
            return tape.gradient(loss, x)
        """,
    ),
    (
        """
        def step(x):
            with tf.GradientTape(watch_accessed_variables=False, persistent=True) as tape:
                loss = tf.reduce_mean(model(x))
            return tape.gradient(loss, x)
        """,
        """
        def step(x):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                loss = tf.reduce_mean(model(x))
            return tape.gradient(loss, x)
        """,
    ),
]

test_flagged = flagged("MF028", FLAGGED)
test_fine = fine("MF028", FINE)
test_fixed = becomes("MF028", FIXED)
