from tests.unit.lint.looking import becomes, fine, flagged

FLAGGED = [
    """
    model = keras.Sequential([layers.Dense(10)])

    outputs = []
    for x, y in dataset:
        outputs.append(model(x, training=False))  # <-
    """,
    """
    model = keras.models.load_model("model.keras")
    data = tf.data.Dataset.from_tensor_slices(images).batch(32)
    results = []
    for step, batch in enumerate(data):
        result = model(batch)
        results.append(result)  # <-
    """,
    """
    class Classifier(keras.Model):
        pass

    net = Classifier()
    for images in test_ds:
        images = images / 255
        kept.append(net(images))  # <-
    """,
]

FINE = [
    """
    model = keras.Sequential([layers.Dense(10)])

    for x, y in dataset:
        outputs.append(model(x).numpy())
    """,
    """
    model = keras.Sequential([layers.Dense(10)])

    for x, y in dataset:
        outputs.append(model.predict(x))
    """,
    """
    model = keras.Sequential([layers.Dense(10)])

    for x, y in dataset.take(3).prefetch(1):
        outputs.append(model(x))
    """,
    """
    @tf.function
    def collect(dataset):
        model = keras.Sequential([layers.Dense(10)])
        for x in dataset:
            outputs.append(model(x))
    """,
    """
    for layer in network:
        outputs.append(layer(x))
    """,
]

FIXED = [
    (
        """
        model = keras.Sequential([layers.Dense(10)])

        for x, y in dataset:
            outputs.append(model(x, training=False))  # all of them
        """,
        """
        model = keras.Sequential([layers.Dense(10)])

        for x, y in dataset:
            outputs.append(model(x, training=False).numpy())  # all of them
        """,
    ),
]

test_flagged = flagged("MF011", FLAGGED)
test_fine = fine("MF011", FINE)
test_fixed = becomes("MF011", FIXED, unsafe=True)
