from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    @tf.function
    def train(iterator):
        for _ in range(100):  # <-
            train_step(next(iterator))
    """,
    """
    @tf.function
    def train(iterator, steps):
        for number in range(steps):  # <-
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(next(iterator)))
    """,
    """
    model.compile("adam", "mse")
    model.unrolled_steps_per_execution = 8  # <-
    """,
]

FINE = [
    """
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    @tf.function
    def train(iterator):
        for _ in tf.range(100):
            train_step(next(iterator))
    """,
    """
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def train(iterator):
        for _ in range(100):
            train_step(next(iterator))
    """,
    """
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    @tf.function
    def train(x):
        for block in range(12):
            x = blocks[block](x)
        return x
    """,
    """
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    @tf.function
    def train(iterator):
        for _ in range(2):
            train_step(next(iterator))
    """,
    """
    model.compile("adam", "mse", steps_per_execution=8)
    model.unrolled_steps_per_execution = 1
    """,
]

FIXED = [
    (
        """
        def train_step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        @tf.function
        def train(iterator):
            for _ in range(100):  # steps
                train_step(next(iterator))
        """,
        """
        def train_step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        @tf.function
        def train(iterator):
            for _ in tf.range(100):  # steps
                train_step(next(iterator))
        """,
    ),
]

test_flagged = flagged("MF033", FLAGGED)
test_fine = fine("MF033", FINE)
test_fixed = becomes("MF033", FIXED, unsafe=True)
