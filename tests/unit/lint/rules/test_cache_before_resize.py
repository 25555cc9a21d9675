from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def resize(image):
        return tf.image.resize(image, (128, 128))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(decode).cache().map(resize).batch(32)  # <-
    """,
    """
    data = tf.data.Dataset.list_files("photos/*.jpg")
    data = data.map(lambda path: tf.io.decode_png(tf.io.read_file(path)))
    data = data.cache()  # <-
    data = data.shuffle(100)
    data = data.map(lambda image: tf.image.resize(image, (64, 64)))
    """,
    """
    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def resize(image):
        return tf.image.resize(image, (128, 128))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(decode).cache("file")  # <-
    data = data.map(lambda x: layers.Resizing(64, 64)(x))
    """,
]

FINE = [
    """
    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def resize(image):
        return tf.image.resize(image, (128, 128))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(decode).map(resize).cache().batch(32)
    """,
    """
    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def resize(image):
        return tf.image.resize(image, (128, 128))

    data = tf.data.Dataset.list_files("photos/*.jpg").cache().map(decode).map(resize).batch(32)
    """,
    """
    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def resize(image):
        return tf.image.resize(image, (128, 128))

    def crop(image):
        return tf.image.resize(tf.image.random_crop(image, (200, 200, 3)), (128, 128))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(decode).cache().map(crop)
    """,
    """
    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def resize(image):
        return tf.image.resize(image, (128, 128))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(decode).map(resize).cache().map(resize)
    """,
]

test_flagged = flagged("MF009", FLAGGED)
test_fine = fine("MF009", FINE)
