from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    class Net(keras.Model):
        def call(self, x):
            for block in self.blocks:
                x = block(x)
                self.features.append(x)  # <-
            return x
    """,
    """
    class Layer(layers.Layer):
        def call(self, x):
            self.seen.append(x)  # <-
            return x
    """,
    """
    class Net(keras.Model):
        def train_step(self, data):
            loss = tf.reduce_mean(self(data))
            self.history.append(loss)  # <-
            return {"loss": loss}
    """,
]

FINE = [
    """
    class Net(keras.Model):
        def call(self, x):
            features = []
            for block in self.blocks:
                x = block(x)
                features.append(x)
            return features
    """,
    """
    class Net(keras.Model):
        def call(self, x):
            self.features = []
            for block in self.blocks:
                x = block(x)
                self.features.append(x)
            return x
    """,
    """
    class Net(keras.Model):
        def __init__(self):
            self.blocks = []
            self.blocks.append(layers.Dense(3))
    """,
    """
    class Net(keras.Model):
        def call(self, x):
            self.features.append(layers.Dense(1)(x))
            return x

        def reset(self):
            self.features.clear()
    """,
]

test_flagged = flagged("MF032", FLAGGED)
test_fine = fine("MF032", FINE)
