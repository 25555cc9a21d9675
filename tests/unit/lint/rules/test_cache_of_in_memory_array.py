from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32).cache()  # <-
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(images)
    data = data.batch(32).prefetch(2)
    data = data.cache()  # <-
    train(data)
    """,
    """
    validation = (
        tf.data.Dataset.from_tensor_slices(images)
        .batch(32)
        .cache()  # <-
        .prefetch(2)
    )
    """,
]

FINE = [
    """
    data = tf.data.Dataset.from_tensor_slices(images).cache().batch(32)
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(images).map(expensive).batch(32).cache()
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(images).batch(32).cache("file")
    """,
    """
    data = tf.data.TFRecordDataset(files).batch(32).cache()
    """,
]

FIXED = [
    (
        """
        data = tf.data.Dataset.from_tensor_slices(images).batch(32).cache().prefetch(2)  # kept
        """,
        """
        data = tf.data.Dataset.from_tensor_slices(images).batch(32).prefetch(2)  # kept
        """,
    ),
    (
        """
        data = tf.data.Dataset.from_tensor_slices(images).batch(32)
        data = data.cache()
        train(data)
        """,
        """
        data = tf.data.Dataset.from_tensor_slices(images).batch(32)
        train(data)
        """,
    ),
    (
        """
        data = (
            tf.data.Dataset.from_tensor_slices(images)
            .batch(32)
            .cache()  # for speed
            .prefetch(2)
        )
        """,
        """
        data = (
            tf.data.Dataset.from_tensor_slices(images)
            .batch(32)  # for speed
            .prefetch(2)
        )
        """,
    ),
    (
        """
        data = tf.data.Dataset.from_tensor_slices(images).batch(32)
        if fast:
            data = data.cache()
        """,
        """
        data = tf.data.Dataset.from_tensor_slices(images).batch(32)
        if fast:
            data = data.cache()
        """,
    ),
]

test_flagged = flagged("MF010", FLAGGED)
test_fine = fine("MF010", FINE)
test_fixed = becomes("MF010", FIXED)
