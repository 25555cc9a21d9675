from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    keras.mixed_precision.set_global_policy("mixed_float16")

    model = keras.Sequential([layers.Dense(64), layers.Dense(10, activation="softmax")])  # <-
    model.compile("adam", "categorical_crossentropy")
    """,
    """
    policy = tf.keras.mixed_precision.Policy("mixed_float16")
    tf.keras.mixed_precision.set_global_policy(policy)
    inputs = keras.Input((8,))
    outputs = layers.Dense(1, activation="sigmoid")(inputs)  # <-
    model = keras.Model(inputs, outputs)
    model.compile("adam", "binary_crossentropy")
    """,
    """
    keras.config.set_dtype_policy("mixed_float16")

    def build():
        model = keras.Sequential()
        model.add(layers.Dense(10))
        model.add(layers.Softmax())  # <-
        return model

    model = build()
    model.compile("adam", "categorical_crossentropy")
    """,
]

FINE = [
    """
    keras.mixed_precision.set_global_policy("mixed_float16")

    model = keras.Sequential([layers.Dense(10), layers.Activation("softmax", dtype="float32")])
    model.compile("adam", "categorical_crossentropy")
    """,
    """
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = keras.Sequential([layers.Dense(10, activation="softmax")])
    model.compile("adam", "categorical_crossentropy")
    """,
    """
    keras.mixed_precision.set_global_policy("mixed_float16")

    model = keras.Sequential([layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    """,
    """
    model = keras.Sequential([layers.Dense(10, activation="softmax")])
    model.compile("adam", "categorical_crossentropy")
    keras.mixed_precision.set_global_policy("mixed_float16")
    """,
]

test_flagged = flagged("MF035", FLAGGED)
test_fine = fine("MF035", FINE)
