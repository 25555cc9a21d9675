from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    history = []
    for x, y in data:
        loss = train_step(x, y)
        history.append(loss)  # <-
    """,
    """
    losses = []
    for step in range(1000):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(predict(x) - y))
        losses.append(loss)  # <-
    """,
    """
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    class Trainer:
        def run(self, data):
            for x, y in data:
                self.losses.append(train_step(x, y))  # <-
    """,
    """
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = loss_fn(model(x))
            other = tf.reduce_sum(x)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss, other

    for x in data:
        loss, _ = train_step(x)
        history["loss"].append(loss)  # <-
    """,
]

FINE = [
    """
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for x, y in data:
        history.append(float(train_step(x, y)))
    """,
    """
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for x, y in data:
        loss = train_step(x, y)
        history.append(loss.numpy())
    """,
    """
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for epoch in range(10):
        losses = []
        for x, y in data:
            losses.append(train_step(x, y))
        print(np.mean(losses))
    """,
    """
    for epoch in range(10):
        loss = model.train_on_batch(x, y)
        history.append(loss)
    """,
    """
    @tf.function
    def steps(data):
        for x in data:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(x)
            losses.append(loss)
    """,
]

FIXED = [
    (
        """
        for step in range(1000):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(predict(x) - y))
            losses.append(loss)  # kept
        """,
        """
        for step in range(1000):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(predict(x) - y))
            losses.append(float(loss))  # kept
        """,
    ),
]

test_flagged = flagged("MF012", FLAGGED)
test_fine = fine("MF012", FINE)
test_fixed = becomes("MF012", FIXED, unsafe=True)
