from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    (x_train, y_train), _ = keras.datasets.cifar10.load_data()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for epoch in range(10):
        train_step(x_train, y_train)  # <-
    """,
    """
    (x_train, y_train), _ = tf.keras.datasets.mnist.load_data()
    images = tf.constant(x_train.reshape(-1, 784) / 255.0)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for epoch in range(10):
        loss = train_step(images, y_train)  # <-
    """,
    """
    (x_train, y_train), _ = keras.datasets.mnist.load_data()
    model = keras.Sequential([layers.Dense(10)])
    for epoch in range(10):
        with tf.GradientTape() as tape:
            logits = model(x_train, training=True)  # <-
    """,
    """
    images = np.array([cv2.imread(path) for path in glob.glob("photos/*.jpg")])

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    while True:
        train_step(images, labels)  # <-
    """,
]

FINE = [
    """
    (x_train, y_train), _ = keras.datasets.cifar10.load_data()
    data = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(32)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for x, y in data:
        train_step(x, y)
    """,
    """
    (x_train, y_train), _ = keras.datasets.cifar10.load_data()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for start in range(0, 50000, 32):
        train_step(x_train[start : start + 32], y_train[start : start + 32])
    """,
    """
    x = tf.linspace(0.0, 1.0, 100)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for epoch in range(10):
        train_step(x, x * 2)
    """,
    """
    (x_train, y_train), _ = keras.datasets.cifar10.load_data()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for epoch in range(10):
        print(evaluate(x_train, y_train))
    """,
]

test_flagged = flagged("MF005", FLAGGED)
test_fine = fine("MF005", FINE)
