from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.from_tensor_slices(paths).map(read).shuffle(len(paths)).batch(32)  # <-
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    BUFFER = 10_000
    data = tf.data.Dataset.list_files("photos/*.jpg")
    data = data.map(read, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.shuffle(buffer_size=BUFFER)  # <-
    """,
    """
    data = keras.utils.image_dataset_from_directory("photos")
    data = data.shuffle(1000).prefetch(2)  # <-
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(32).cache("on-disk").shuffle(100)  # <-
    """,
]

FINE = [
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).map(read).batch(32)
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).shuffle(64).batch(32)
    """,
    """
    data = keras.utils.image_dataset_from_directory("photos")
    data = data.cache().shuffle(1000).prefetch(2)
    """,
    """
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(32)
    """,
]

test_flagged = flagged("MF006", FLAGGED)
test_fine = fine("MF006", FINE)
