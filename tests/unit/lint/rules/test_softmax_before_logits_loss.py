from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    model = keras.Sequential([layers.Dense(64), layers.Dense(10, activation="softmax")])
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))  # <-
    """,
    """
    inputs = keras.Input((8,))
    outputs = layers.Dense(1, activation="sigmoid")(inputs)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss=keras.losses.BinaryCrossentropy(from_logits=True))  # <-
    """,
    """
    model = keras.Sequential()
    model.add(layers.Dense(10))
    model.add(layers.Activation("softmax"))
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))  # <-
    """,
    """
    def build():
        inputs = keras.Input((8,))
        x = layers.Dense(10)(inputs)
        outputs = layers.Softmax()(x)
        return keras.Model(inputs, outputs)

    model = build()
    criterion = tf.keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(loss=criterion, optimizer="adam")  # <-
    """,
]

FINE = [
    """
    model = keras.Sequential([layers.Dense(64), layers.Dense(10)])
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    """,
    """
    model = keras.Sequential([layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    """,
    """
    model = keras.Sequential([layers.Dense(64, activation="softmax"), layers.Dense(10)])
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    """,
    """
    model = keras.Sequential([layers.Dense(10, activation="softmax")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=False))
    """,
]

test_flagged = flagged("MF034", FLAGGED)
test_fine = fine("MF034", FINE)
