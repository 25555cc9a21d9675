from tests.unit.lint.looking import fine, flagged

FLAGGED = [
    """
    def build():
        model = keras.Sequential([layers.Dense(10)])
        model.compile("adam", "mse")
        return model

    for train, test in folds.split(x):
        model = build()  # <-
        model.fit(x[train], y[train])
    """,
    """
    for rate in [0.1, 0.01, 0.001, 0.0001]:
        model = keras.Sequential([layers.Dense(10)])  # <-
        model.compile("adam", "mse")
        model.fit(x, y, epochs=3)
        scores.append(model.evaluate(x, y))
    """,
    """
    class Net(keras.Model):
        pass

    for seed in range(10):
        net = Net()  # <-
        net.compile("adam", "mse")
        net.fit(x, y)
    """,
]

FINE = [
    """
    rates = [0.1, 0.01]
    for number, rate in enumerate(rates):
        model = keras.Sequential([layers.Dense(10)])
        model.compile("adam", "mse")
        model.fit(x, y)
    """,
    """
    def build():
        model = keras.Sequential([layers.Dense(10)])
        model.compile("adam", "mse")
        return model

    for train, test in folds.split(x):
        keras.backend.clear_session()
        model = build()
        model.fit(x[train], y[train])
    """,
    """
    def build():
        model = keras.Sequential([layers.Dense(10)])
        model.compile("adam", "mse")
        return model

    for seed in range(10):
        model = build()
        model.fit(x, y)
        ensemble.append(model)
    """,
    """
    def build():
        model = keras.Sequential([layers.Dense(10)])
        model.compile("adam", "mse")
        return model

    model = build()
    for epoch in range(10):
        model.fit(x, y)
    """,
    """
    def build():
        model = keras.Sequential([layers.Dense(10)])
        model.compile("adam", "mse")
        return model

    for seed in range(2):
        model = build()
        model.fit(x, y)
    """,
    """
    for depth in range(10):
        block = keras.Sequential([layers.Dense(10)])
        x = block(x)
    """,
    """
    def build():
        model = keras.Sequential([layers.Dense(10)])
        model.compile("adam", "mse")
        return model

    def clean():
        tf.keras.backend.clear_session()

    for seed in range(10):
        model = build()
        model.fit(x, y)
        clean()
    """,
]

test_flagged = flagged("MF019", FLAGGED)
test_fine = fine("MF019", FINE)
