from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.experimental.set_memory_growth(gpus[0], True)
    tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])  # <-
    """,
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
    tf.config.experimental.set_memory_growth(gpus[0], True)  # <-
    """,
    """
    def setup():
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
            print("limited")
            tf.config.experimental.set_virtual_device_configuration(  # <-
                gpu, [tf.config.experimental.VirtualDeviceConfiguration(memory_limit=1024)]
            )
    """,
]

FINE = [
    """
    gpus = tf.config.list_physical_devices("GPU")

    if grow:
        tf.config.experimental.set_memory_growth(gpus[0], True)
    else:
        tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
    """,
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
    """,
    """
    gpus = tf.config.list_physical_devices("GPU")

    tf.config.experimental.set_memory_growth(gpus[1], True)
    tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
    """,
    """
    gpus = tf.config.list_physical_devices("GPU")

    def grow():
        tf.config.experimental.set_memory_growth(gpus[0], True)

    def limit():
        tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
    """,
]

test_flagged = flagged("MF023", FLAGGED)
test_fine = fine("MF023", FINE)
