from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False

    data = tf.data.Dataset.from_tensor_slices((x, y)).map(change).batch(32).with_options(options)
    model.fit(data, epochs=3)  # <-
    """,
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False

    data = tf.data.TFRecordDataset(files).with_options(options)
    data = data.map(change).batch(32)
    model.fit(data, validation_data=other)  # <-
    """,
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False

    model = keras.Sequential([layers.Dense(1)])
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(32).with_options(options))  # <-
    """,
]

FINE = [
    """
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(change).batch(32)
    model.fit(data, epochs=3)
    """,
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False

    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).prefetch(2).with_options(options)
    model.fit(data, epochs=3)
    """,
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = True
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).with_options(options)
    model.fit(data, epochs=3)
    """,
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False

    for x in tf.data.Dataset.from_tensor_slices((x, y)).batch(32).with_options(options):
        show(x)
    """,
]

test_flagged = flagged("MF014", FLAGGED)
test_fine = fine("MF014", FINE)
