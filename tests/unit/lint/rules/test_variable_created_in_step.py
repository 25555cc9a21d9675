from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    @tf.function
    def step(x):
        total = tf.Variable(0.0)  # <-
        return total.assign_add(x)
    """,
    """
    class Scale(layers.Layer):
        def call(self, x):
            scale = tf.Variable(tf.ones(3))  # <-
            return x * scale
    """,
    """
    class Net(keras.Model):
        def train_step(self, data):
            counter = tf.Variable(0)  # <-
            return {}
    """,
]

FINE = [
    """
    class Scale(layers.Layer):
        def build(self, shape):
            self.scale = tf.Variable(tf.ones(3))
    """,
    """
    class Scale(layers.Layer):
        def call(self, x):
            if self.scale is None:
                self.scale = tf.Variable(tf.ones(3))
            return x * self.scale
    """,
    """
    counter = tf.Variable(0)

    @tf.function
    def step(x):
        return counter.assign_add(x)
    """,
    """
    class Table:
        def call(self, x):
            return tf.Variable(x)
    """,
]

test_flagged = flagged("MF029", FLAGGED)
test_fine = fine("MF029", FINE)
