from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    with tf.device("/GPU:0"):
        data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)  # <-
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(paths).batch(32)
    data = data.apply(tf.data.experimental.prefetch_to_device("/gpu:0"))
    data = data.map(augment)  # <-
    """,
    """
    data = data.prefetch(1).apply(tf.data.experimental.copy_to_device("/gpu:0")).map(cast).batch(32)  # <-
    """,
    """
    with tf.device("CPU:0"), tf.device("gpu:1"):
        tensors = tf.data.Dataset.from_tensors(images)
    with tf.device("gpu:1"):
        tensors = tf.data.Dataset.from_tensors(images)  # <-
    """,
]

FINE = [
    """
    with tf.device("/CPU:0"):
        data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    """,
    """
    data = data.map(augment).batch(32).apply(tf.data.experimental.prefetch_to_device("/gpu:0"))
    """,
    """
    with tf.device("/GPU:0"):
        with tf.device("/CPU:0"):
            data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    """,
    """
    with tf.device("/GPU:0"):
        model.fit(data)
    """,
]

test_flagged = flagged("MF015", FLAGGED)
test_fine = fine("MF015", FINE)
