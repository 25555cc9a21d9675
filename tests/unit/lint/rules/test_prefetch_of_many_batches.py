from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(32).prefetch(32)  # <-
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def prepare(paths, batch_size):
        data = tf.data.Dataset.from_tensor_slices(paths).map(read)
        return data.batch(batch_size).prefetch(buffer_size=batch_size)  # <-
    """,
    """
    train = keras.utils.image_dataset_from_directory("photos", image_size=(224, 224))
    train = train.prefetch(buffer_size=1000)  # <-
    """,
]

FINE = [
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(32).prefetch(2)
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(32).prefetch(tf.data.AUTOTUNE)
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).prefetch(32).batch(32)
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(table).batch(32).prefetch(32)
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(4).prefetch(4)
    """,
]

FIXED = [
    (
        """
        def read(path):
            return tf.io.decode_jpeg(tf.io.read_file(path), 3)

        data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(32).prefetch(buffer_size=32)  # many
        """,
        """
        def read(path):
            return tf.io.decode_jpeg(tf.io.read_file(path), 3)

        data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(32).prefetch(buffer_size=2)  # many
        """,
    ),
]

test_flagged = flagged("MF013", FLAGGED)
test_fine = fine("MF013", FINE)
test_fixed = becomes("MF013", FIXED)
