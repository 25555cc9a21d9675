from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    images = []
    for path in glob.glob("photos/*.jpg"):
        images.append(cv2.imread(path))
    images = np.array(images) / 255.0
    model = keras.Sequential([layers.Dense(1)])
    model.fit(images, labels)  # <-
    """,
    """
    from sklearn.model_selection import train_test_split

    def load():
        images, labels = [], []
        for name in os.listdir("photos"):
            images.append(cv2.imread(name))
            labels.append(0)
        return np.array(images), np.array(labels)

    x, y = load()
    x_train, x_test, y_train, y_test = train_test_split(x, y)
    model.fit(x_train, y_train, epochs=3)  # <-
    """,
    """
    paths = glob.glob("photos/*.jpg")
    images = np.zeros((len(paths), 64, 64, 3))
    for number, path in enumerate(paths):
        images[number] = cv2.imread(path)
    images = images.astype("float32")
    images /= 255.0
    model.fit(x=images, y=labels, batch_size=8)  # <-
    """,
]

FINE = [
    """
    (x, y), _ = keras.datasets.mnist.load_data()
    model.fit(x, y, epochs=3)
    """,
    """
    images = []
    for path in glob.glob("photos/*.jpg"):
        images.append(cv2.imread(path))
    images = np.array(images)
    scaler.fit(images)
    """,
    """
    images = []
    for path in glob.glob("photos/*.jpg"):
        images.append(cv2.imread(path))
    images = np.array(images)
    data = tf.data.Dataset.from_tensor_slices(labels).batch(32)
    model.fit(data, epochs=3)
    """,
]

test_flagged = flagged("MF002", FLAGGED)
test_fine = fine("MF002", FINE)
