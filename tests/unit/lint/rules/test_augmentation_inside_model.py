from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    model = keras.Sequential([
        layers.RandomFlip("horizontal"),  # <-
        layers.Conv2D(32, 3),
        layers.Dense(10),
    ])
    """,
    """
    augment = keras.Sequential([layers.RandomFlip(), layers.RandomZoom(0.1)])
    inputs = keras.Input((224, 224, 3))
    x = augment(inputs)  # <-
    outputs = layers.Dense(10)(x)
    """,
    """
    from tensorflow.keras.layers.experimental import preprocessing

    inputs = tf.keras.layers.Input((224, 224, 3))
    x = layers.Rescaling(1 / 255)(inputs)
    x = preprocessing.RandomRotation(0.1)(x)  # <-
    """,
    """
    augmentation = tf.keras.Sequential([layers.RandomContrast(0.2)])
    model = tf.keras.Sequential([
        augmentation,  # <-
        layers.Conv2D(32, 3),
    ])
    """,
]

FINE = [
    """
    augment = keras.Sequential([layers.RandomFlip(), layers.RandomZoom(0.1)])
    train = train.map(lambda x, y: (augment(x, training=True), y))
    """,
    """
    model = keras.Sequential([layers.Rescaling(1 / 255), layers.Conv2D(32, 3), layers.Dense(10)])
    """,
    """
    augment = keras.Sequential([layers.RandomFlip()])
    plt.imshow(augment(images)[0])
    """,
    """
    model = keras.Sequential([layers.Dropout(0.5), layers.Dense(10)])
    """,
]

test_flagged = flagged("MF016", FLAGGED)
test_fine = fine("MF016", FINE)
