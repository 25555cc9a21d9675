from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x)) / accumulation_steps  # <-
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    """,
    """
    class Net(keras.Model):
        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(data)
            gradients = tape.gradient(loss, self.trainable_variables)
            gradients = [gradient / self.accum_steps for gradient in gradients]  # <-
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
    """,
    """
    ACCUMULATION = 4

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        scaled = tape.gradient(loss / ACCUMULATION, model.trainable_variables)  # <-
        optimizer.apply_gradients(zip(scaled, model.trainable_variables))
    """,
]

FINE = [
    """
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x)) / accumulation_steps
        gradients = tape.gradient(loss, model.trainable_variables)
        for total, gradient in zip(totals, gradients):
            total.assign_add(gradient)
        optimizer.apply_gradients(zip(totals, model.trainable_variables))
    """,
    """
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x)) / global_batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    """,
    """
    def gradients_of(x, accumulation_steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x)) / accumulation_steps
        return tape.gradient(loss, model.trainable_variables)
    """,
    """
    def average(history, accumulation_steps):
        return sum(history) / accumulation_steps
    """,
]

test_flagged = flagged("MF024", FLAGGED)
test_fine = fine("MF024", FINE)
