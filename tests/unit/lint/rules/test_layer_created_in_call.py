from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    class Block(layers.Layer):
        def call(self, x):
            return layers.Dense(64)(x)  # <-
    """,
    """
    class Net(tf.keras.Model):
        def call(self, x, training=None):
            for filters in (32, 64):
                x = tf.keras.layers.Conv2D(filters, 3)(x)  # <-
            return x
    """,
    """
    class Base(layers.Layer):
        pass

    class Attention(Base):
        def call(self, x):
            attention = layers.MultiHeadAttention(4, 64)  # <-
            return attention(x, x)
    """,
]

FINE = [
    """
    class Block(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(64)

        def call(self, x):
            return self.dense(x)
    """,
    """
    class Block(layers.Layer):
        def call(self, x, y):
            return layers.Flatten()(layers.Add()([x, y]))
    """,
    """
    def block(x):
        return layers.Dense(64)(x)
    """,
    """
    class Block(layers.Layer):
        def call(self, x):
            if not self.dense:
                self.dense = layers.Dense(64)
            return self.dense(x)
    """,
]

test_flagged = flagged("MF030", FLAGGED)
test_fine = fine("MF030", FINE)
