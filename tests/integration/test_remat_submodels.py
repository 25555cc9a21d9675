"""Models that train other models: these are recomputed, training ends where it does without, and takes less memory."""

import json
import subprocess
import sys
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import memfit
from memfit.errors import InputError
from memfit.techniques import remat

SAMPLES, BATCH, WIDTH, LATENT = 8, 4, 6, 3


pytestmark = pytest.mark.usefixtures("in_float64")


def stack(name, width, outputs, depth=3):
    """Has all that could differ when it runs again: dropout, statistics, a loss of its own."""
    model = keras.Sequential([keras.Input((width,))], name=name)
    for number in range(depth):
        model.add(layers.Dense(WIDTH, activation="tanh", name=f"dense_{number}"))
        model.add(layers.BatchNormalization(name=f"norm_{number}"))
        model.add(layers.Dropout(0.2, seed=number, name=f"drop_{number}"))
    model.add(layers.Dense(outputs, activity_regularizer="l2", name="last"))
    return model


class Gan(keras.Model):
    """Two optimizers; `training` is what the models are called with, or `()` for nothing."""

    def __init__(self, training=(), penalty=False, depth=3):
        super().__init__()
        self.discriminator = stack("discriminator", WIDTH, 1, depth)
        self.generator = stack("generator", LATENT, WIDTH)
        self.seeds = keras.random.SeedGenerator(3)
        self.mode = {} if training == () else {"training": training}
        self.penalty = penalty

    def compile(self, **settings):
        super().compile(**settings)
        self.optimizers = [keras.optimizers.Adam(0.01, epsilon=1e-4), keras.optimizers.RMSprop(0.01, epsilon=1e-4)]
        for optimizer, model in zip(self.optimizers, (self.discriminator, self.generator), strict=True):
            optimizer.build(model.trainable_variables)

    def noise(self, like):
        return keras.random.normal((ops.shape(like)[0], LATENT), seed=self.seeds, dtype="float64")

    def train_step(self, real):
        fake = self.generator(self.noise(real), **self.mode)
        with tf.GradientTape() as tape:
            judged = self.discriminator(ops.concatenate([real, fake], 0), **self.mode)
            first = ops.mean(ops.softplus(judged) * ops.sign(judged)) + sum(self.discriminator.losses)
            if self.penalty:
                with tf.GradientTape() as inner:
                    inner.watch(fake)
                    slope = self.discriminator(fake, **self.mode)
                first += ops.mean(ops.square(inner.gradient(slope, fake)))
        weights = self.discriminator.trainable_weights
        self.optimizers[0].apply(tape.gradient(first, weights), weights)
        with tf.GradientTape() as tape:
            second = -ops.mean(self.discriminator(self.generator(self.noise(real), **self.mode), **self.mode))
        weights = self.generator.trainable_weights
        self.optimizers[1].apply(tape.gradient(second, weights), weights)
        return {"first": first, "second": second}

    def test_step(self, real):
        return {"judged": ops.mean(self.discriminator(real))}


class Sampling(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(5)

    def call(self, inputs):
        mean, spread = inputs
        return mean + ops.exp(spread) * keras.random.normal(ops.shape(mean), seed=self.seeds, dtype="float64")


class Vae(keras.Model):
    def __init__(self):
        super().__init__()
        inputs = keras.Input((WIDTH,))
        tensor = stack("body", WIDTH, WIDTH)(inputs)
        mean, spread = layers.Dense(LATENT)(tensor), layers.Dense(LATENT)(tensor)
        self.encoder = keras.Model(inputs, [mean, spread, Sampling()([mean, spread])], name="encoder")
        self.decoder = stack("decoder", LATENT, WIDTH)
        self.seen = keras.metrics.Mean(name="loss")

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, spread, drawn = self.encoder(data)
            loss = ops.mean(ops.square(data - self.decoder(drawn))) + ops.mean(mean**2 + ops.exp(spread) - spread)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        self.seen.update_state(loss)
        return {"loss": self.seen.result()}

    def test_step(self, data):
        return {"loss": ops.mean(ops.square(data - self.decoder(self.encoder(data)[2])))}


class Distiller(keras.Model):
    """A frozen teacher, and a call of its own."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student = stack("teacher", WIDTH, 2, depth=4), stack("student", WIDTH, 2)
        self.teacher.trainable = False

    def call(self, inputs, training=None):
        return self.student(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(ops.square(self.teacher(x, training=False) - y_pred)) + sum(self.losses)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(data, y_pred=self(data, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}

    def test_step(self, data):
        return {"loss": self.compute_loss(data, y_pred=self(data, training=False))}


class Loose(keras.Model):
    """No call and no models, only layers that its step calls."""

    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(WIDTH, activation="tanh") for _ in range(4)]
        for block in self.blocks:
            block.build((None, WIDTH))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            tensor = data
            for block in self.blocks:
                tensor = block(tensor)
            loss = ops.mean(ops.square(tensor - data))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class Combined(Gan):
    """Holds a model of its models as well, which recomputes them as part of its own segments."""

    def __init__(self):
        super().__init__(training=True)
        inputs = keras.Input((LATENT,))
        self.both = keras.Model(inputs, self.discriminator(self.generator(inputs)), name="both")

    def train_step(self, real):
        logs = super().train_step(real)
        with tf.GradientTape() as tape:
            loss = ops.mean(self.both(self.noise(real), training=True))
        weights = self.generator.trainable_weights
        self.optimizers[1].apply(tape.gradient(loss, weights), weights)
        return logs | {"third": loss}


def trained(build, value, *, jit=False, **settings):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    model = build()
    if not isinstance(model, Gan):
        settings["optimizer"] = keras.optimizers.AdamW(0.01, epsilon=1e-4, weight_decay=0.1)
    model.compile(jit_compile=jit, **settings)
    data = np.random.default_rng(0).normal(size=(SAMPLES, WIDTH))
    checked = {} if isinstance(model, Loose) else {"validation_data": tf.data.Dataset.from_tensors(data)}
    with remat.applied(model, value) if value else nullcontext():
        history = model.fit(data, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, **checked).history
    assert not any("call" in vars(layer) for layer in model._flatten_layers())
    optimizers = model.optimizers if isinstance(model, Gan) else [model.optimizer]
    state = [*model.variables, *(variable for optimizer in optimizers for variable in optimizer.variables)]
    return history, [np.array(each) for each in state]


def assert_same(planned, plain):
    (history, state), (plain_history, plain_state) = planned, plain
    assert history.keys() == plain_history.keys()
    for name, values in plain_history.items():
        assert history[name] == pytest.approx(values, rel=1e-9), name
    for value, plain_value in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(value, plain_value, rtol=0, atol=1e-9 * np.abs(plain_value).max() + 1e-12)


CASES = {
    "gan": (Gan, 6),
    "gan in training": (lambda: Gan(training=True), 6),
    "gan with a gradient penalty": (lambda: Gan(training=True, penalty=True), 6),
    "gan by name": (Gan, ["generator", "discriminator/dense_0..discriminator/drop_1"]),
    "gan with a model of both": (Combined, 8),
    "vae": (Vae, 5),
    "distiller": (Distiller, 6),
    "layers alone": (Loose, 3),
}


QUICK = {"gan", "vae"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES])
def test_graph_mode(name):
    build, value = CASES[name]
    assert_same(trained(build, value), trained(build, None))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gan in training", "vae", "distiller"])
@pytest.mark.parametrize("settings", [{"jit": True}, {"run_eagerly": True}], ids=["xla", "eager"])
def test_other_modes(name, settings):
    build, value = CASES[name]
    assert_same(trained(build, value, **settings), trained(build, None, **settings))


def test_an_estimate_sees_the_plan_of_a_model_that_only_trains_others():
    """Such a model is never built."""
    model = Gan()
    model.compile()
    data = np.zeros((BATCH, WIDTH))

    def operations():
        return len(memfit.estimate(model, BATCH, gpu="cpu", jit=False, data=data).step.ops)

    plain = operations()
    with memfit.applied(model, memfit.Plan(remat=6)):
        assert operations() > plain
    assert operations() == plain


def test_segments_go_where_the_bytes_are():
    cuts = remat._cuts(Gan(depth=12), 6)
    assert [cut.model.name for cut in cuts] == ["discriminator", "generator"]
    assert len(cuts[0].segments) > len(cuts[1].segments) >= 1
    # A segment over the border of two models is one more.
    assert 6 <= sum(len(cut.segments) for cut in cuts) <= 7


def test_every_call_of_a_gan_is_in_a_segment():
    for cut in remat._cuts(Gan(), 4):
        assert [segment.start for segment in cut.segments] == [0, *(segment.stop for segment in cut.segments[:-1])]
        assert cut.segments[-1].stop == len(cut.graph.calls)


def test_two_segments_are_enough():
    assert remat.check(Gan(), 2).grade == "exact"
    assert remat.check(Loose(), 2).grade == "exact"


@pytest.mark.parametrize("names", [["generator/nothing"], ["nothing"], ["generator/dense_0..nothing"]])
def test_unknown_names_are_refused(names):
    with pytest.raises(InputError, match=r"does not have: .*nothing.*generator"):
        remat.check(Gan(), names)


def test_too_many_segments_are_refused():
    with pytest.raises(InputError, match="remat=99 is not possible"):
        remat.check(Gan(), 99)


def test_models_that_are_not_built_are_refused():
    model = Gan()
    model.generator = keras.Sequential([layers.Dense(WIDTH)], name="unbuilt")
    with pytest.raises(InputError, match=r"not built yet in Gan: unbuilt.*keras\.Input"):
        remat.check(model, 3)


def test_models_without_weights_stay_whole():
    model = Gan()
    model.augment = keras.Sequential([keras.Input((8, 8, 3)), layers.RandomFlip(), layers.RandomRotation(0.1)])
    assert {cut.model.name for cut in remat._cuts(model, 4)} == {"discriminator", "generator"}


# A child of its own: an allocator can be chosen only once, and must have seen nothing before.
CHILD = """
import json, sys
from memfit.estimation import measure_child
from memfit.hardware import devices
measure_child._set_up(6 * 2**30)
import keras, numpy, tensorflow as tf, memfit
from keras import layers, ops
from memfit.techniques import remat

def body(name, shape, depth):
    model = keras.Sequential([keras.Input(shape)], name=name)
    for _ in range(depth):
        model.add(layers.Conv2D(16, 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.LeakyReLU())
    model.add(layers.Conv2D(3, 3, padding="same"))
    return model

class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.discriminator, self.generator = body("discriminator", SHAPE, 12), body("generator", SHAPE, 12)

    def train_step(self, real):
        fake = self.generator(tf.random.normal(tf.shape(real)), **MODE)
        with tf.GradientTape() as tape:
            first = ops.mean(self.discriminator(ops.concatenate([real, fake], 0), **MODE))
        weights = self.discriminator.trainable_weights
        self.optimizer.apply(tape.gradient(first, weights), weights)
        with tf.GradientTape() as tape:
            second = -ops.mean(self.discriminator(self.generator(tf.random.normal(tf.shape(real)), **MODE), **MODE))
        weights = self.generator.trainable_weights
        for gradient, weight in zip(tape.gradient(second, weights), weights):
            weight.assign_sub(0.01 * gradient)
        return {"first": first, "second": second}

class Vae(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = body("encoder", SHAPE, 12), body("decoder", SHAPE, 12)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            drawn = self.encoder(data, **MODE)
            drawn = drawn + keras.random.normal(ops.shape(drawn))
            loss = ops.mean(ops.square(data - self.decoder(drawn, **MODE)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}

kind, count, mode = json.loads(sys.argv[1])
SHAPE, MODE = (48, 48, 3), {"training": True} if mode else {}
model = {"gan": Gan, "vae": Vae}[kind]()
model.compile(keras.optimizers.SGD(0.01), jit_compile=False)
dataset = tf.data.Dataset.from_tensors(numpy.zeros((16, *SHAPE), "float32"))
with remat.applied(model, count) if count else memfit.applied(model, memfit.Plan()):
    model.fit(dataset.repeat(2), verbose=0)
    devices.reset_peak()
    model.fit(dataset.repeat(3), verbose=0)
print(json.dumps(devices.memory()[0].peak))
"""


def peak(kind, count, training):
    arguments = json.dumps([kind, count, training])
    child = subprocess.run([sys.executable, "-c", CHILD, arguments], capture_output=True, text=True, check=True)
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "training"), [("gan", False), ("vae", True)])
def test_a_step_takes_less_memory(kind, training):
    assert peak(kind, 8, training) <= 0.75 * peak(kind, None, training)
