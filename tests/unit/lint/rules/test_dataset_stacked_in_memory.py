from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    images = []
    for path in glob.glob("photos/*.jpg"):
        images.append(cv2.imread(path))
    images = np.array(images)  # <-
    """,
    """
    def load(folder):
        images = []
        for name in os.listdir(folder):
            image = keras.utils.load_img(os.path.join(folder, name), target_size=(224, 224))
            image = keras.utils.img_to_array(image) / 255.0
            images.append(image)
        return np.stack(images)  # <-
    """,
    """
    paths = sorted(glob.glob("photos/*.png"))
    images = np.array([cv2.imread(path) for path in paths])  # <-
    """,
    """
    ids = next(os.walk("train"))[1]
    images = np.zeros((len(ids), 128, 128, 3), dtype=np.uint8)  # <-
    for number, name in enumerate(ids):
        images[number] = cv2.imread("train/" + name)
    """,
    """
    def read(path):
        return cv2.resize(cv2.imread(path), (64, 64))

    images = []
    for path in glob.glob("photos/*.jpg"):
        images.append(read(path))
    images = tf.stack(images)  # <-
    """,
]

FINE = [
    """
    images = []
    for path in glob.glob("photos/*.jpg")[:9]:
        images.append(cv2.imread(path))
    images = np.array(images)
    """,
    """
    class Batches(keras.utils.Sequence):
        def __getitem__(self, index):
            images = []
            for path in self.paths[index * 32 : index * 32 + 32]:
                images.append(cv2.imread(path))
            return np.array(images)
    """,
    """
    def generate(paths):
        while True:
            images = []
            for path in paths:
                images.append(cv2.imread(path))
                if len(images) == 32:
                    yield np.array(images)
                    images = []
    """,
    """
    names = []
    for path in glob.glob("photos/*.jpg"):
        names.append(os.path.basename(path))
    names = np.array(names)
    """,
    """
    masks = []
    for path in glob.glob("photos/*.jpg"):
        masks.append(model.predict(cv2.imread(path)[None])[0])
    masks = np.array(masks)
    """,
]

test_flagged = flagged("MF001", FLAGGED)
test_fine = fine("MF001", FINE)
