from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    images = []
    for path in glob.glob("photos/*.jpg"):
        images.append(cv2.imread(path))
    model.fit(np.array(images), labels, epochs=3)
    images = np.array(images)
    model.fit(images, labels, validation_split=0.2)  # <-
    """,
    """
    paths = glob.glob("photos/*.jpg")
    images = np.array([cv2.imread(path) for path in paths])
    share = 0.1
    model.fit(
        images,
        labels,
        validation_split=share,  # <-
    )
    """,
    """
    def load():
        images = []
        for name in os.listdir("photos"):
            images.append(cv2.imread(name))
        return np.array(images)

    model.fit(load(), labels, validation_split=0.5)  # <-
    """,
]

FINE = [
    """
    model.fit(features, labels, validation_split=0.2)
    """,
    """
    images = np.array([cv2.imread(path) for path in glob.glob("photos/*.jpg")])
    model.fit(images, labels, validation_split=0.0)
    """,
    """
    images = np.array([cv2.imread(path) for path in glob.glob("photos/*.jpg")])
    model.fit(images, labels, validation_data=(other, other_labels))
    """,
]

test_flagged = flagged("MF003", FLAGGED)
test_fine = fine("MF003", FINE)
