from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    for image in images:
        scores.append(model.predict(np.expand_dims(image, axis=0), verbose=0))  # <-
    """,
    """
    model = keras.models.load_model("model.keras")
    for number in range(len(images)):
        score = model.predict(images[number : number + 1])  # <-
    """,
    """
    model = keras.Sequential([layers.Dense(1)])
    while True:
        frame = camera.read()
        x = frame.reshape(1, 224, 224, 3)
        y = model.predict(x)  # <-
    """,
    """
    for image in images:
        x = tf.expand_dims(image, 0)
        model.predict(x, verbose=0)  # <-
        other.predict(image[None, ...], batch_size=1)  # <-
    """,
]

FINE = [
    """
    scores = model.predict(images, batch_size=32)
    """,
    """
    for batch in data:
        model.predict(batch, verbose=0)
    """,
    """
    for image in images[:9]:
        model.predict(np.expand_dims(image, axis=0), verbose=0)
    """,
    """
    forest = RandomForestClassifier()
    for row in rows:
        forest.predict(row.reshape(1, -1))
    """,
    """
    for image in images:
        model(image[None], training=False)
    """,
    """
    x = np.expand_dims(image, 0)
    for model in models:
        model.predict(x, verbose=0)
    """,
]

test_flagged = flagged("MF020", FLAGGED)
test_fine = fine("MF020", FINE)
