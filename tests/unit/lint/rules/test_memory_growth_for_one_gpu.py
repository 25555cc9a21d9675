from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.experimental.set_memory_growth(gpus[0], True)  # <-
    """,
    """
    devices = tf.config.experimental.list_physical_devices("GPU")
    if devices:
        tf.config.experimental.set_memory_growth(devices[0], enable=True)  # <-
    """,
    """
    from tensorflow import config

    def setup():
        tf.config.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)  # <-
    """,
]

FINE = [
    """
    gpus = tf.config.list_physical_devices("GPU")

    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    """,
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.set_visible_devices(gpus[0], "GPU")
    tf.config.experimental.set_memory_growth(gpus[0], True)
    """,
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpus[0], True)
    """,
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.experimental.set_memory_growth(gpus[0], True)
    tf.config.experimental.set_memory_growth(gpus[1], True)
    """,
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.experimental.set_memory_growth(gpus[0], False)
    """,
]

FIXED = [
    (
        """
        gpus = tf.config.list_physical_devices("GPU")

        if gpus:
            tf.config.experimental.set_memory_growth(gpus[0], True)
        # the rest
        """,
        """
        gpus = tf.config.list_physical_devices("GPU")

        if gpus:
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, True)
        # the rest
        """,
    ),
    (
        """
        gpus = tf.config.list_physical_devices("GPU")

        gpu = 0
        tf.config.experimental.set_memory_growth(gpus[0], True)
        """,
        """
        gpus = tf.config.list_physical_devices("GPU")

        gpu = 0
        tf.config.experimental.set_memory_growth(gpus[0], True)
        """,
    ),
    (
        """
        gpus = tf.config.list_physical_devices("GPU")

        tf.config.experimental.set_memory_growth(gpus[0], True); print(gpus)
        """,
        """
        gpus = tf.config.list_physical_devices("GPU")

        tf.config.experimental.set_memory_growth(gpus[0], True); print(gpus)
        """,
    ),
]

test_flagged = flagged("MF022", FLAGGED)
test_fine = fine("MF022", FINE)
test_fixed = becomes("MF022", FIXED)
