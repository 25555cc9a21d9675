from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    class Net(keras.Model):
        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(data)
            gradients = tape.gradient(loss, self.trainable_variables)
            for i in range(len(self.totals)):
                self.totals[i].assign_add(gradients[i])
            tf.cond(tf.equal(self.count, self.every), self.update, lambda: None)

        def update(self):
            for i in range(len(self.totals)):
                self.totals[i] / self.every
            self.optimizer.apply_gradients(zip(self.totals, self.trainable_variables))  # <-
            for i in range(len(self.totals)):
                self.totals[i].assign(tf.zeros_like(self.totals[i]))
    """,
    """
    def train(data):
        totals = [tf.zeros_like(v) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            totals = [total + gradient for total, gradient in zip(totals, gradients)]
            if (step + 1) % 4 == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))  # <-
                totals = [tf.zeros_like(v) for v in model.trainable_variables]
    """,
    """
    def train(data):
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = loss_fn(model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            for i, gradient in enumerate(gradients):
                totals[i].assign_add(gradient)
            if step % steps == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))  # <-
                for total in totals:
                    total.assign(tf.zeros_like(total))
    """,
    """
    class Trainer:
        def step(self, x):
            with tf.GradientTape() as tape:
                loss = self.loss(self.model(x))
            for total, gradient in zip(self.totals, tape.gradient(loss, self.variables)):
                total.assign_add(gradient)
            self.count.assign_add(1)
            if self.count % self.every == 0:
                self.optimizer.apply_gradients(zip(self.totals, self.variables))  # <-
                self.reset()
    """,
]

FINE = [
    """
    def train(data):
        totals = [tf.zeros_like(v) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x)) / 4
            gradients = tape.gradient(loss, model.trainable_variables)
            totals = [total + gradient for total, gradient in zip(totals, gradients)]
            if (step + 1) % 4 == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))
                totals = [tf.zeros_like(v) for v in model.trainable_variables]
    """,
    """
    def train(data):
        totals = [tf.zeros_like(v) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            totals = [total + gradient / 4 for total, gradient in zip(totals, gradients)]
            if (step + 1) % 4 == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))
                totals = [tf.zeros_like(v) for v in model.trainable_variables]
    """,
    """
    def train(data):
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = loss_fn(model(x))
            for total, gradient in zip(totals, tape.gradient(loss, variables)):
                total.assign_add(gradient)
            if step % steps == 0:
                averaged = [total / steps for total in totals]
                optimizer.apply_gradients(zip(averaged, variables))
    """,
    """
    def train(data):
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = loss_fn(model(x))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            if step % 100 == 0:
                print(loss)
    """,
]

test_flagged = flagged("MF026", FLAGGED)
test_fine = fine("MF026", FINE)
