from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def train(data):
        totals = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x)) / 4
            gradients = tape.gradient(loss, model.trainable_variables)
            for total, gradient in zip(totals, gradients):
                total.assign_add(gradient)
            if (step + 1) % 4 == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))  # <-
    """,
    """
    class Net(keras.Model):
        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(data)
            gradients = tape.gradient(loss, self.trainable_variables)
            for i in range(len(self.totals)):
                self.totals[i].assign_add(gradients[i])
            self.optimizer.apply_gradients(zip(self.totals, self.trainable_variables))  # <-
    """,
    """
    def train(data):
        totals = [tf.zeros_like(v) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            totals = [total + gradient / 4 for total, gradient in zip(totals, gradients)]
            if step % 4 == 3:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))  # <-
    """,
]

FINE = [
    """
    def train(data):
        totals = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x)) / 4
            gradients = tape.gradient(loss, model.trainable_variables)
            for total, gradient in zip(totals, gradients):
                total.assign_add(gradient)
            if (step + 1) % 4 == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))
                for total in totals:
                    total.assign(tf.zeros_like(total))
    """,
    """
    def train(data):
        totals = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x)) / 4
            gradients = tape.gradient(loss, model.trainable_variables)
            for total, gradient in zip(totals, gradients):
                total.assign_add(gradient)
            if (step + 1) % 4 == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))
                totals = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
    """,
    """
    def train(data):
        totals = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
        for step, x in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x)) / 4
            gradients = tape.gradient(loss, model.trainable_variables)
            for total, gradient in zip(totals, gradients):
                total.assign_add(gradient)
            if (step + 1) % 4 == 0:
                optimizer.apply_gradients(zip(totals, model.trainable_variables))
                reset(totals)
    """,
    """
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    """,
]

test_flagged = flagged("MF025", FLAGGED)
test_fine = fine("MF025", FINE)
