from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(32).cache()  # <-
    """,
    """
    train = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
    train = train.cache()  # <-
    train = train.shuffle(1000)
    """,
    """
    def prepare(data, training):
        if training:
            data = data.shuffle(1000)
        return data.batch(32).cache().prefetch(2)  # <-
    """,
]

FINE = [
    """
    train = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(1000).batch(32)
    """,
    """
    validation = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).cache()
    """,
    """
    mixed = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100_000, reshuffle_each_iteration=False)
    train = mixed.take(80_000).batch(32).cache()
    """,
    """
    test = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100).batch(32).cache()
    """,
    """
    train = tf.data.Dataset.from_tensor_slices(texts).batch(64).map(vectorize).cache().shuffle(2048).prefetch(2)
    """,
]

test_flagged = flagged("MF008", FLAGGED)
test_fine = fine("MF008", FINE)
