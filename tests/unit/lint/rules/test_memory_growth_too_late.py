from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    print(tf.test.is_gpu_available())
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)  # <-
    """,
    """
    x = tf.constant([1.0])
    gpus = tf.config.experimental.list_physical_devices("GPU")
    if gpus:
        try:
            tf.config.experimental.set_memory_growth(gpus[0], True)  # <-
        except RuntimeError as error:
            print(error)
    """,
    """
    def main():
        model = keras.applications.ResNet50()
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.experimental.set_memory_growth(gpus[0], enable=True)  # <-
    """,
]

FINE = [
    """
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    print(tf.config.list_logical_devices("GPU"))
    """,
    """
    def helper():
        return tf.constant(1.0)

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    """,
    """
    print(len(tf.config.list_physical_devices("GPU")))
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    """,
    """
    if testing:
        print(tf.constant(1.0))
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    """,
]

test_flagged = flagged("MF021", FLAGGED)
test_fine = fine("MF021", FINE)
