"""The forms in which users have their data and their models, as `fit` accepts them."""

import numpy as np
import pytest

import memfit
from memfit.errors import InputError
from memfit.trace.function import TraceError
from memfit.trace.tracer import trace_step

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
layers = keras.layers

X, Y = np.zeros((32, 8), "float32"), np.zeros((32, 1), "float32")


def dense(units=64):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(units), layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def peak(model, batch_size=32, **options):
    return memfit.estimate(model, batch_size, gpu="RTX 3060", jit=False, **options).steady_peak.value


class OwnLoss(layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.mean(inputs**2))
        return inputs


@pytest.fixture(scope="module")
def autoencoder():
    inputs = keras.Input((8,))
    model = keras.Model(inputs, OwnLoss()(layers.Dense(64)(inputs)))
    model.compile("adam")
    return model


@pytest.mark.parametrize(
    "data",
    [X, (X,), (X, None), tf.data.Dataset.from_tensor_slices(X).batch(32), tf.TensorSpec((None, 8))],
    ids=["array", "tuple", "none", "dataset", "spec"],
)
def test_inputs_without_targets(autoencoder, data):
    assert memfit.estimate(autoencoder, 32, data=data, gpu="RTX 3060", jit=False).largest(1)[0]["shape"]


def test_inputs_without_targets_can_be_planned(autoencoder):
    assert memfit.plan(autoencoder, 32, "1GiB", data=X, gpu="RTX 3060", jit=False).feasible


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        (X.astype("float64"), Y.astype("float64")),
        (X.tolist(), Y.tolist()),
        (tf.constant(X), tf.constant(Y)),
        tf.data.Dataset.from_tensor_slices((X, Y)).batch(32),
        tf.data.Dataset.from_generator(lambda: iter([(X, Y)]), output_types=("float32", "float32")),
    ],
    ids=["arrays", "list", "float64", "numbers", "tensors", "dataset", "generator"],
)
def test_every_form_of_the_same_data_gives_the_same_peak(data):
    model = dense()
    assert peak(model, data=data) == peak(model)


def test_a_py_dataset_is_read_once():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            assert index == 0
            return X, Y

    assert peak(dense(), data=Batches()) == peak(dense())


def test_sample_weights_are_part_of_the_batch():
    weights = np.ones(32, "float32")
    with_weights = memfit.estimate(dense(), 32, data=(X, Y, weights), gpu="RTX 3060", jit=False)
    assert len(with_weights.step.input_ops) == 3


def test_nested_inputs_and_named_targets():
    left, right = keras.Input((8,), name="left"), keras.Input((4,), name="right")
    joined = layers.Concatenate()([left, right])
    outputs = {"a": layers.Dense(3, name="a")(joined), "b": layers.Dense(1, name="b")(joined)}
    model = keras.Model({"both": [left, right]}, outputs)
    model.compile("adam", {"a": "mse", "b": "mse"})
    x = {"both": [np.zeros((32, 8), "float32"), np.zeros((32, 4), "float32")]}
    y = {"a": np.zeros((32, 3), "float32"), "b": np.zeros((32, 1), "float32")}
    assert peak(model, data=(x, y)) == peak(model)


@pytest.fixture(scope="module")
def variable_length():
    inputs = keras.Input((None,), dtype="int32")
    hidden = layers.Embedding(100, 32)(inputs)
    model = keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(layers.Dense(64)(hidden))))
    model.compile("adam", "mse")
    return model


def test_lengths_come_from_the_data(variable_length):
    def at(length):
        return peak(variable_length, data=(np.zeros((32, length), "int32"), Y))

    assert at(400) > 3 * at(100)


def test_lengths_come_from_the_first_batch_of_a_dataset(variable_length):
    tokens = tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros((32, 100), "int32"), Y)]),
        output_signature=(tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None, 1))),
    )
    assert peak(variable_length, data=tokens) == peak(variable_length, data=(np.zeros((32, 100), "int32"), Y))


def test_unknown_lengths_are_refused(variable_length):
    specs = tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None, 1))
    with pytest.raises(InputError, match=r"data has unknown sizes: .*Pass one batch of real arrays"):
        peak(variable_length, data=specs)
    with pytest.raises(InputError, match=r"empty tf.data.Dataset"):
        peak(variable_length, data=tf.data.Dataset.from_generator(lambda: iter(()), output_types=("int32", "float32")))


def test_ragged_data_are_refused(variable_length):
    ragged = tf.ragged.constant([[1, 2], [3]])
    with pytest.raises(InputError, match=r"ragged tensor.*Pass a dense one"):
        peak(variable_length, data=(ragged, Y[:2]))


class Subclassed(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.hidden, self.last = layers.Dense(64), layers.Dense(1)

    def call(self, inputs):
        return self.last(self.hidden(inputs))


@pytest.mark.parametrize(
    "make",
    [Subclassed, lambda: keras.Sequential([layers.Dense(64), layers.Dense(1)])],
    ids=["subclassed", "sequential"],
)
def test_an_unbuilt_model_is_built_from_the_data(make):
    model = make()
    model.compile("adam", "mse")
    with pytest.raises(InputError, match=r"is not built.*data="):
        peak(model)
    assert peak(model, data=(X, Y)) == peak(dense())
    model.fit(np.zeros((7, 8), "float32"), np.zeros((7, 1), "float32"), batch_size=7, verbose=0)


def test_an_unbuilt_model_can_be_planned():
    model = Subclassed()
    model.compile("adam", "mse")
    assert memfit.plan(model, 32, "1GiB", data=(X, Y), gpu="RTX 3060", jit=False).feasible


class FixedTokens(layers.Layer):
    def call(self, inputs):
        return keras.ops.reshape(keras.ops.reshape(inputs, (32 * 4, 16)), (32, 64))


@pytest.fixture(scope="module")
def fixed_batch():
    inputs = keras.Input((8,), batch_size=32)
    model = keras.Model(inputs, layers.Dense(1)(FixedTokens()(layers.Dense(64)(inputs))))
    model.compile("adam", "mse")
    return model


def test_a_model_with_a_fixed_batch_is_traced_at_that_size(fixed_batch):
    estimate = memfit.estimate(fixed_batch, 32, gpu="RTX 3060", jit=False)
    assert estimate.step.only_batch == 32
    assert estimate.steady_peak.value == pytest.approx(peak(dense()), rel=0.3)
    assert estimate.fits("1GiB")
    assert trace_step(fixed_batch, "train", gpu=None, batch_size=32).only_batch == 32


def test_a_fixed_batch_has_no_largest_batch(fixed_batch):
    estimate = memfit.estimate(fixed_batch, 32, gpu="RTX 3060", jit=False)
    with pytest.raises(InputError, match=r"fixed batch size inside.*estimate.at"):
        estimate.max_batch("1GiB")
    with pytest.raises(InputError, match="fixed batch size inside"):
        estimate.gpus()
    with pytest.raises(TraceError, match="cannot be traced"):
        _ = estimate.at(16).steady_peak


def test_a_fixed_batch_is_planned_without_slices(fixed_batch):
    plan = memfit.plan(fixed_batch, 32, "20KiB", gpu="RTX 3060", jit=False)
    assert not plan.feasible
    assert plan.prediction.largest_batch is None


def test_a_stateful_recurrent_model():
    inputs = keras.Input((5, 8), batch_size=16)
    model = keras.Model(inputs, layers.Dense(1)(layers.SimpleRNN(16, stateful=True)(inputs)))
    model.compile("adam", "mse")
    assert memfit.estimate(model, 16, gpu="RTX 3060", jit=False).step.only_batch == 16


class Gan(keras.Model):
    """Two optimizers, and a compile() that passes nothing on."""

    def __init__(self, *, calls_super):
        super().__init__()
        self.calls_super = calls_super
        self.generator = keras.Sequential([layers.Dense(64), layers.Dense(8)])
        self.discriminator = keras.Sequential([keras.Input((8,)), layers.Dense(64), layers.Dense(1)])

    def compile(self):
        if self.calls_super:
            super().compile()
        self.d_optimizer, self.g_optimizer = keras.optimizers.Adam(), keras.optimizers.SGD(momentum=0.9)

    def train_step(self, real):
        noise = tf.random.normal((tf.shape(real)[0], 4))
        with tf.GradientTape(persistent=True) as tape:
            fake = self.generator(noise)
            scores = self.discriminator(tf.concat([real, fake], axis=0))
            d_loss, g_loss = tf.reduce_mean(scores), -tf.reduce_mean(self.discriminator(fake))
        for loss, part, optimizer in (
            (d_loss, self.discriminator, self.d_optimizer),
            (g_loss, self.generator, self.g_optimizer),
        ):
            weights = part.trainable_weights
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": d_loss}


@pytest.mark.parametrize("calls_super", [True, False])
def test_a_model_with_several_optimizers(calls_super):
    gan = Gan(calls_super=calls_super)
    gan.compile()
    estimate = memfit.estimate(gan, 32, data=X, gpu="RTX 3060", jit=False)
    kinds = {variable.name: variable.kind for variable in estimate.step.variables}
    assert sum(kind == "parameter" for kind in kinds.values()) == 8
    assert sum(name.endswith(("velocity", "momentum")) for name in kinds) == 4 * 2 + 4
    assert estimate.phases["evaluate"] is None
    assert {moment.part for moment in estimate.composition.timeline} == {"forward", "backward", "update"}
    assert gan.d_optimizer.iterations.numpy() == 0
    if calls_super:
        gan.fit(X, batch_size=8, verbose=0)


def test_a_model_with_several_optimizers_under_xla():
    gan = Gan(calls_super=True)
    gan.compile()
    assert memfit.estimate(gan, 32, data=X, gpu="RTX 3060", jit=True).regime == "xla"


def test_a_model_with_its_own_step_still_needs_data():
    with pytest.raises(InputError, match="Pass an example batch"):
        memfit.estimate(Gan(calls_super=False), 32, gpu="RTX 3060")
