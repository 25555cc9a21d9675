from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    total = tf.reduce_sum(tf.stack([a, b, c]), axis=0)  # <-
    """,
    """
    outputs = [layer(x) for layer in branches]
    mean = keras.ops.mean(keras.ops.stack(outputs, axis=0), axis=0)  # <-
    """,
    """
    def merged(branches, x):
        parts = []
        for branch in branches:
            parts.append(branch(x))
        stacked = tf.stack(parts, axis=-1)
        return tf.math.reduce_mean(stacked, axis=-1)  # <-
    """,
]

FINE = [
    """
    total = tf.add_n([a, b, c])
    """,
    """
    total = tf.reduce_sum(tf.stack([a, b, c]), axis=1)
    """,
    """
    total = tf.reduce_sum(tf.stack([a, b, c]))
    """,
    """
    stacked = tf.stack([a, b, c])
    total, largest = tf.reduce_sum(stacked, axis=0), tf.reduce_max(stacked, axis=0)
    """,
    """
    total = tf.reduce_sum(tf.stack(tensor), axis=0)
    """,
]

FIXED = [
    (
        """
        total = tf.reduce_sum(tf.stack([a, b, c]), axis=0)  # sum
        """,
        """
        total = tf.add_n([a, b, c])  # sum
        """,
    ),
    (
        """
        parts = [f(x) for f in functions]
        total = 2 * tf.reduce_sum(tf.stack(parts, axis=0), 0) + 1
        """,
        """
        parts = [f(x) for f in functions]
        total = 2 * tf.add_n(parts) + 1
        """,
    ),
]

test_flagged = flagged("MF031", FLAGGED)
test_fine = fine("MF031", FINE)
test_fixed = becomes("MF031", FIXED, unsafe=True)
