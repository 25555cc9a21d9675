from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def augment(image):
        return tf.image.random_flip_left_right(image)

    data = data.map(augment, num_parallel_calls=4).cache().batch(32)  # <-
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(images)
    data = data.map(lambda image: tf.image.random_brightness(image, 0.2))
    data = data.batch(32)
    data = data.cache()  # <-
    """,
    """
    augment = keras.Sequential([layers.RandomFlip(), layers.RandomRotation(0.1)])
    train = keras.utils.image_dataset_from_directory("photos")
    train = train.map(lambda x, y: (augment(x, training=True), y)).cache("file").prefetch(2)  # <-
    """,
    """
    class Data:
        def shift(self, image):
            return image + tf.random.normal(tf.shape(image))

        def build(self, paths):
            return tf.data.Dataset.from_tensor_slices(paths).map(self.shift).cache()  # <-
    """,
]

FINE = [
    """
    def augment(image):
        return tf.image.random_flip_left_right(image)

    data = tf.data.Dataset.from_tensor_slices(images).cache().map(augment).batch(32)
    """,
    """
    data = tf.data.Dataset.from_tensor_slices(images).map(lambda image: image / 255).cache()
    """,
    """
    def augment(image):
        return tf.image.random_flip_left_right(image)

    train = tf.data.Dataset.from_tensor_slices(images)
    validation = train.cache()
    train = train.map(augment)
    """,
    """
    def augment(image):
        return tf.image.random_flip_left_right(image)

    data = tf.data.Dataset.from_tensor_slices(images)
    if training:
        data = data.map(augment)
    else:
        data = data.cache()
    """,
]

test_flagged = flagged("MF007", FLAGGED)
test_fine = fine("MF007", FINE)
