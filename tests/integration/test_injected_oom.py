"""Out of memory at random points of training: nothing is lost or doubled, and the result is the same as without."""

import random
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.errors import RecoveryWarning

EPOCHS, BATCHES, BATCH = 2, 4, 6
VALIDATION = 2
ROWS = BATCHES * BATCH - 2
PLACES = ("forward", "backward", "update")


class Fuse(layers.Layer):
    """Passes its input through, and runs out of memory where and when it is armed."""

    armed: set[str] = set()  # noqa: RUF012 (one for all)
    blown = 0

    @classmethod
    def check(cls, place):
        def passed(value):
            if place in cls.armed:
                cls.armed.discard(place)
                cls.blown += 1
                raise MemoryError("OOM when allocating tensor, on purpose")
            return value

        def checked(tensor):
            result = tf.numpy_function(passed, [tensor], tensor.dtype)
            result.set_shape(tensor.shape)
            return result

        return checked

    def call(self, inputs):
        @tf.custom_gradient
        def through(tensor):
            return self.check("forward")(tensor), self.check("backward")

        return through(inputs)


class FusedUpdate(keras.constraints.Constraint):
    """Runs out of memory after the optimizer has begun to write."""

    def __call__(self, w):
        return Fuse.check("update")(w)


class Arming(keras.callbacks.Callback):
    """Arms the fuse at chosen steps."""

    def __init__(self, points):
        super().__init__()
        self.points, self.steps = points, {"train": 0, "validation": 0}

    def begin(self, phase):
        self.steps[phase] += 1
        Fuse.armed = {place for kind, step, place in self.points if (kind, step) == (phase, self.steps[phase])}

    def on_train_batch_begin(self, batch, logs=None):
        self.begin("train")

    def on_test_batch_begin(self, batch, logs=None):
        self.begin("validation")


def dense():
    inputs = keras.Input((8,))
    tensor = layers.Dense(8, activation="relu", kernel_constraint=FusedUpdate())(inputs)
    tensor = Fuse()(layers.Dropout(0.3, seed=1)(tensor))
    model = keras.Model(inputs, layers.Dense(3)(layers.Dense(8)(tensor)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=[keras.metrics.SparseCategoricalAccuracy()])
    return model, (np.random.default_rng(0).normal(size=(ROWS, 8)), np.random.default_rng(1).integers(0, 3, ROWS))


def normalised():
    inputs = keras.Input((8,))
    tensor = layers.BatchNormalization()(layers.Dense(8, kernel_constraint=FusedUpdate())(inputs))
    tensor = Fuse()(layers.BatchNormalization()(layers.Dense(8)(tensor)))
    for _ in range(12):
        tensor = layers.Dense(8, activation="tanh")(tensor)
    model = keras.Model(inputs, layers.Dense(1)(tensor))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model, (np.random.default_rng(0).normal(size=(ROWS, 8)), np.random.default_rng(1).normal(size=(ROWS, 1)))


def tokens():
    inputs = keras.Input((5,), dtype="int32")
    places = layers.Embedding(5, 6)(tf.range(5))
    tensor = layers.Embedding(20, 6, mask_zero=True)(inputs) + places
    tensor = Fuse()(layers.LSTM(6)(tensor))
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid", kernel_constraint=FusedUpdate())(tensor))
    model.compile(keras.optimizers.Adam(global_clipnorm=1.0), "binary_crossentropy", weighted_metrics=["accuracy"])
    return model, (np.random.default_rng(0).integers(0, 20, (ROWS, 5)), np.random.default_rng(1).integers(0, 2, ROWS))


def dice():
    inputs = keras.Input((8,))
    tensor = Fuse()(layers.Dense(8, activation="relu", kernel_constraint=FusedUpdate())(inputs))
    model = keras.Model(inputs, layers.Dense(4, activation="sigmoid")(tensor))
    model.compile("rmsprop", keras.losses.Dice())
    labels = np.random.default_rng(1).integers(0, 2, (ROWS, 4)).astype("float64")
    return model, (np.random.default_rng(0).normal(size=(ROWS, 8)), labels)


class OwnStep(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def own_step():
    inputs = tensor = keras.Input((8,))
    for _ in range(16):
        tensor = layers.Dense(8, activation="tanh")(tensor)
    tensor = Fuse()(layers.Dense(8, kernel_constraint=FusedUpdate())(tensor))
    model = OwnStep(inputs, layers.Dense(1)(tensor))
    model.compile("adam", "mse")
    return model, (np.random.default_rng(0).normal(size=(ROWS, 8)), np.random.default_rng(1).normal(size=(ROWS, 1)))


pytestmark = pytest.mark.usefixtures("in_float64")
MODELS = (dense, normalised, tokens, dice, own_step)


def trained(build, points, seen):
    keras.utils.set_random_seed(0)
    model, (x, y) = build()

    def note(rows):
        seen.append(rows.tolist())
        return rows

    def noted(pair, rows):
        rows = tf.numpy_function(note, [rows], rows.dtype)
        with tf.control_dependencies([rows]):
            return tf.nest.map_structure(tf.identity, pair)

    numbered = tf.data.Dataset.from_tensor_slices(((x, y), np.arange(ROWS))).batch(BATCH)
    training = numbered.map(noted)
    validation = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).take(VALIDATION)

    told = []

    class Told(keras.callbacks.Callback):
        def on_recovery(self, event):
            told.append((event.phase, event.step))

    Fuse.armed, Fuse.blown = set(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        history = memfit.fit(
            model,
            training,
            epochs=EPOCHS,
            validation_data=validation,
            verbose=0,
            shuffle=False,
            callbacks=[Arming(points), Told()],
            recover=bool(points),
        )
    state = [np.array(each) for each in [*model.variables, *model.optimizer.variables]]
    return history.history, state, told


def points_of(seed, count):
    draw = random.Random(seed)
    steps = {"train": EPOCHS * BATCHES, "validation": EPOCHS * VALIDATION}
    found = set()
    while len(found) < count:
        phase = draw.choices(list(steps), weights=(3, 1))[0]
        place = draw.choice(PLACES) if phase == "train" else "forward"
        found.add((phase, draw.randint(1, steps[phase]), place))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("build", MODELS)
def test_a_run_that_runs_out_anywhere_ends_as_if_it_never_had(build):
    seen = []
    history, state, _ = trained(build, set(), seen)
    assert len(seen) == EPOCHS * BATCHES
    blown = 0
    for seed in range(14):
        again = []
        # As many as the model with the fewest fallbacks has.
        survived, after, told = trained(build, points := points_of(seed, 3), again)
        blown += Fuse.blown
        assert again == seen, f"{sorted(points)}: other samples"
        assert {each[:2] for each in points} >= set(told)
        for name, values in history.items():
            assert survived[name] == pytest.approx(values, rel=1e-6), (name, sorted(points))
        for value, expected in zip(after, state, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-9, err_msg=str(sorted(points)))
    # Over all models that makes more than 200.
    assert blown >= 41


def test_when_nothing_helps_the_first_error_is_raised_and_the_model_is_as_before(monkeypatch):
    full = {"now": False}

    def check(_cls, place):
        def passed(value):
            if full["now"]:
                raise MemoryError(f"OOM when allocating tensor in the {place} pass")
            return value

        return lambda tensor: tf.ensure_shape(tf.numpy_function(passed, [tensor], tensor.dtype), tensor.shape)

    monkeypatch.setattr(Fuse, "check", classmethod(check))
    model, (x, y) = dense()

    class FullFromTheThirdBatchOn(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            full["now"] = batch == 2
            self.before = [np.array(each) for each in [*model.variables, *model.optimizer.variables]]

    callback = FullFromTheThirdBatchOn()
    with pytest.raises(tf.errors.ResourceExhaustedError, match="in the forward pass"):
        memfit.fit(model, x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback], recover=True)
    for value, expected in zip([*model.variables, *model.optimizer.variables], callback.before, strict=True):
        np.testing.assert_array_equal(np.array(value), expected)
