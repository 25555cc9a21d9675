from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read)
    model.fit(data, epochs=3)  # <-
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(paths)
    data = data.map(lambda path: tf.image.decode_png(tf.io.read_file(path)))
    data = data.shuffle(100).prefetch(2)
    model.fit(data, epochs=3)  # <-
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    def prepare(data):
        return data.map(read, num_parallel_calls=4)

    train = prepare(tf.data.Dataset.list_files("photos/*.jpg"))
    keras.Sequential([layers.Dense(1)]).fit(train)  # <-
    """,
]

FINE = [
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read).batch(32)
    model.fit(data, epochs=3)
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read)
    data = data.apply(tf.data.experimental.dense_to_ragged_batch(32))
    model.fit(data, epochs=3)
    """,
    """
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda x, y: (x / 255, y))
    model.fit(data, epochs=3)
    """,
    """
    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    for image in tf.data.Dataset.list_files("photos/*.jpg").map(read):
        show(image)
    """,
]

test_flagged = flagged("MF004", FLAGGED)
test_fine = fine("MF004", FINE)
