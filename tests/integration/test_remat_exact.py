"""Recomputed training ends where plain training ends, for programs as people write them."""

from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from memfit.errors import InputError
from memfit.techniques import compile_mode, remat
from memfit.techniques.layer_graph import layer_graph

# The matrix of `exactness` has a few of these in every run.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_float64")]

SAMPLES, BATCH, WIDTH = 8, 4, 6
DENSE = {"activation": "tanh"}


def chain(*middle, width=WIDTH):
    """The layers in question between others, so that segments have something before and behind them."""
    tensor = inputs = keras.Input((width,))
    for layer in (layers.Dense(WIDTH, **DENSE), *middle, layers.Dense(WIDTH, **DENSE), layers.Dense(1)):
        tensor = layer(tensor)
    return keras.Model(inputs, tensor)


class Tracked(layers.Layer):
    """Keeps a mean of what it sees, uses it after the update, and reports it as a metric."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, inputs):
        self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(inputs, 0))
        self.seen.update_state(ops.abs(inputs))
        return inputs - self.mean + 0.01 * self.seen.result()


class Normalized(layers.Layer):
    """Assigns its own trainable weight before it uses it."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

    def call(self, inputs):
        self.kernel.assign(self.kernel / (1e-3 + ops.norm(self.kernel)))
        return inputs @ self.kernel


class Noisy(layers.Layer):
    """Draws without a seed: from Keras's global generator."""

    def call(self, inputs, training=None):
        return inputs + keras.random.normal(ops.shape(inputs)) * 0.3 if training else inputs


class Unused(layers.Layer):
    """Has a weight that no gradient reaches."""

    def build(self, shape):
        self.used = self.add_weight(shape=(shape[-1],), initializer="ones")
        self.unused = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, inputs):
        return inputs * self.used


class Penalized(layers.Layer):
    def call(self, inputs):
        self.add_loss(0.1 * ops.mean(ops.square(inputs)))
        return inputs


def capturing(variable):
    return layers.Lambda(lambda inputs: inputs * ops.convert_to_tensor(variable), output_shape=(WIDTH,))


class Capturing(keras.Model):
    """Trains a variable that no layer tracks, which a Lambda layer reads."""

    def train_step(self, data):
        x, y = data
        weights = [each.value for each in self.trainable_weights]
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        *gradients, last = tape.gradient(loss, [*weights, self.captured[0]])
        self.optimizer.apply(gradients, self.trainable_weights)
        self.captured[0].assign_sub(0.1 * last)
        return {"loss": loss}


def with_captured(variable):
    model = chain(capturing(variable), layers.Dropout(0.2))
    trained = Capturing(model.inputs, model.outputs)
    raw = variable.value if isinstance(variable, keras.Variable) else variable
    object.__setattr__(trained, "captured", (raw,))  # past the tracking
    return trained


def stateful_rnn():
    inputs = keras.Input(batch_shape=(BATCH, 3, 2))
    tensor = layers.LSTM(WIDTH, stateful=True, return_sequences=True)(inputs)
    return keras.Model(inputs, layers.Dense(1)(layers.GRU(4, dropout=0.2)(layers.Dense(WIDTH)(tensor))))


def masked():
    inputs = keras.Input((5,), dtype="int32")
    tensor = layers.Embedding(7, WIDTH, mask_zero=True)(inputs)
    tensor = layers.MultiHeadAttention(2, 3, dropout=0.1)(tensor, tensor)
    tensor = layers.LSTM(4, return_sequences=True)(layers.Dropout(0.2)(layers.Dense(WIDTH, **DENSE)(tensor)))
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(tensor)))


def backbone():
    """As keras-hub builds its tasks: a backbone with named inputs inside a model."""
    inputs = {
        "token_ids": keras.Input((5,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((5,), dtype="int32", name="padding_mask"),
    }
    tensor = layers.Embedding(7, WIDTH)(inputs["token_ids"])
    for _ in range(3):
        wide = layers.Dense(WIDTH, **DENSE)(layers.LayerNormalization()(tensor))
        tensor = layers.Add()([tensor, layers.Dropout(0.2)(wide)])
    tensor = tensor * ops.expand_dims(ops.cast(inputs["padding_mask"], tensor.dtype), -1)
    return keras.Model(inputs, {"sequence": tensor, "pooled": tensor[:, 0]}, name="backbone")


def task():
    inner = backbone()
    outputs = inner(inner.input)
    return keras.Model(inner.input, layers.Dense(1)(layers.Dense(4, **DENSE)(outputs["pooled"])))


def towers():
    """One model inside another, twice, its inputs in a list in the other order."""
    first, second = keras.Input((WIDTH,), name="first"), keras.Input((3,), name="second")
    joined = layers.Concatenate()([layers.Dense(4, **DENSE)(first), layers.Dense(4)(second)])
    inner = keras.Model([first, second], [layers.Dropout(0.3)(joined), layers.Dense(3)(joined)], name="tower")
    b, a = keras.Input((3,), name="b"), keras.Input((WIDTH,), name="a")
    tall, small = inner([a, b], training=False)
    again, _ = inner([layers.Dense(WIDTH)(tall), small])
    block = keras.Sequential([layers.Dense(WIDTH, **DENSE), layers.BatchNormalization(), layers.Dropout(0.1)])
    return keras.Model({"b": b, "a": a}, layers.Dense(1)(block(again)))


class Doubled(keras.Model):
    """A Functional model whose call does more than its graph."""

    def call(self, inputs, training=None, mask=None):
        return 2 * super().call(inputs, training=training, mask=mask)


def with_doubled():
    inputs = keras.Input((WIDTH,))
    inner = Doubled(inputs, layers.Dense(WIDTH, **DENSE)(layers.Dense(WIDTH)(inputs)))
    return chain(inner, layers.Dropout(0.2))


class Block(layers.Layer):
    def __init__(self, width):
        super().__init__()
        self.wide, self.drop, self.narrow = layers.Dense(2 * width), layers.Dropout(0.2), layers.Dense(width)
        self.norm = layers.BatchNormalization()

    def call(self, inputs, scale, training=None):
        hidden = self.drop(ops.tanh(self.wide(inputs)), training=training)
        self.add_loss(0.01 * ops.mean(ops.square(hidden)))
        return {"out": inputs + scale * self.norm(self.narrow(hidden), training=training)}


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [Block(WIDTH) for _ in range(3)]
        self.head = layers.Dense(1)

    def call(self, inputs, training=None):
        for block in (*self.blocks, self.blocks[0]):
            inputs = block(inputs, scale=0.5, training=training)["out"]
        return self.head(inputs)


def subclassed():
    model = Subclassed()
    model(np.zeros((2, WIDTH)))
    return model


class Penalty(keras.Model):
    """A training step of its own, with the gradient of a gradient in it."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                predicted = self(x, training=True)
            slope = inner.gradient(predicted, x)
            loss = self.compute_loss(x, y, predicted) + 0.1 * tf.reduce_mean(tf.square(slope))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


def penalty():
    model = chain(layers.Dropout(0.2), layers.Dense(WIDTH, activation="softplus"))
    return Penalty(model.inputs, model.outputs)


def two_outputs():
    """The loss does not depend on one of them, so that its weights have no gradient."""
    inputs = keras.Input((WIDTH,))
    tensor = layers.Dense(WIDTH, **DENSE)(inputs)
    unused = layers.Dense(3)(tensor)
    used = layers.Dense(1)(layers.Dense(WIDTH, **DENSE)(layers.Dense(WIDTH)(tensor)))
    return keras.Model(inputs, {"used": used, "unused": unused})


def data(model):
    random = np.random.default_rng(0)

    def values(tensor):
        shape = (SAMPLES, *tensor.shape[1:])
        if "int" in tensor.dtype:
            return np.minimum(random.integers(0, 7, shape), 1 if "mask" in tensor.name else 7)
        return random.normal(size=shape)

    inputs = keras.Input((WIDTH,)) if isinstance(model, Subclassed) else model.input
    x = keras.tree.map_structure(values, inputs)
    return x, random.normal(size=(SAMPLES, 1))


def trained(build, value, *, jit=False, **settings):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    model = build()
    # With its default epsilon Adam makes visible digits of the rounding of gradients that are nearly 0.
    optimizer = keras.optimizers.AdamW(0.01, epsilon=1e-4, weight_decay=0.1, global_clipnorm=0.5)
    loss = {"used": "mse", "unused": None} if build is two_outputs else "mse"
    model.compile(optimizer, loss, jit_compile=jit, **settings)
    x, y = data(model)
    y = {"used": y} if build is two_outputs else y
    given = {"x": x, "y": y, "batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    # The technique alone: `memfit.applied` would refuse what differs.
    with remat.applied(model, value) if value else nullcontext():
        history = model.fit(**given).history
    seed = keras.src.random.seed_generator.global_seed_generator().state
    captured = getattr(model, "captured", ())
    state = [*model.variables, *model.optimizer.variables, *model.metrics_variables, *captured, seed]
    return history, [np.array(each) for each in state]


def assert_same(planned, plain):
    (history, state), (plain_history, plain_state) = planned, plain
    assert history.keys() == plain_history.keys()
    for name, values in plain_history.items():
        assert history[name] == pytest.approx(values, rel=1e-6), name
    for value, plain_value in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(value, plain_value, rtol=0, atol=1e-6 * np.abs(plain_value).max() + 1e-12)


CASES = {
    "state read after its update": lambda: chain(Tracked(), layers.Dropout(0.2)),
    "trainable weight assigned": lambda: chain(Normalized(), layers.Dropout(0.2)),
    "spectral normalization": lambda: chain(layers.SpectralNormalization(layers.Dense(WIDTH))),
    "unseeded random numbers": lambda: chain(Noisy(), Noisy()),
    "weight without gradient": lambda: chain(Unused()),
    "losses in layers": lambda: chain(
        Penalized(), layers.Dense(WIDTH, activity_regularizer="l2", kernel_regularizer="l2"), Penalized()
    ),
    "stateful recurrent layers": stateful_rnn,
    "masks": masked,
    "captured tf.Variable": lambda: with_captured(tf.Variable(np.linspace(0.5, 1, WIDTH))),
    "captured keras.Variable": lambda: with_captured(keras.Variable(np.linspace(0.5, 1, WIDTH))),
    "task with a backbone": task,
    "models in a model": towers,
    "nested model with its own call": with_doubled,
    "output without loss": two_outputs,
    "own train_step with a gradient penalty": penalty,
    "model with its own call": subclassed,
}


WITHOUT_GRADIENT = pytest.mark.filterwarnings("ignore:Gradients do not exist")  # Keras's word on a plain step, too


SLOW = {"stateful recurrent layers", "captured keras.Variable", "spectral normalization", "models in a model"}


@WITHOUT_GRADIENT
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_graph_mode(name):
    assert_same(trained(CASES[name], 4), trained(CASES[name], None))


@WITHOUT_GRADIENT
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_compiled_with_xla(name):
    assert_same(trained(CASES[name], 4, jit=True), trained(CASES[name], None, jit=True))


@WITHOUT_GRADIENT
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_run_eagerly(name):
    assert_same(trained(CASES[name], 4, run_eagerly=True), trained(CASES[name], None, run_eagerly=True))


def test_sparse_inputs():
    def build():
        inputs = keras.Input((WIDTH,), sparse=True)
        tensor = layers.Dense(WIDTH, **DENSE)(layers.Dropout(0.1)(layers.Dense(WIDTH)(inputs)))
        return keras.Model(inputs, layers.Dense(1)(tensor))

    def run(value):
        keras.utils.set_random_seed(1)
        model = build()
        model.compile("sgd", "mse", jit_compile=False)
        dense = np.eye(WIDTH)
        x, y = tf.sparse.from_dense(dense), np.ones((WIDTH, 1))
        with remat.applied(model, value) if value else nullcontext():
            history = model.fit(tf.data.Dataset.from_tensors((x, y)), epochs=2, shuffle=False, verbose=0).history
        return history, [np.array(each) for each in model.variables]

    assert_same(run(4), run(None))


def test_float8_scales_are_overwritten_as_in_a_plain_step():
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")

    def build():
        model = chain(layers.Dense(WIDTH), layers.Dense(WIDTH))
        for layer in model.layers[1:]:
            layer.quantize("float8")
        return model

    def run(value):
        history, state = trained(build, value)
        return history["loss"], state

    (loss, state), (plain_loss, plain_state) = run(4), run(None)
    assert loss == pytest.approx(plain_loss, rel=1e-5)
    for value, plain in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-4, atol=1e-6)


def test_state_is_not_rounded_under_mixed_precision():
    class Remembering(layers.Layer):
        def build(self, shape):
            self.kept = self.add_weight(shape=(2,), initializer=keras.initializers.Constant(1 / 3), trainable=False)

        def call(self, inputs):
            self.kept.assign(tf.constant([1 / 7, 1 / 9]))
            return inputs * self.kept[0]

    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = Remembering()
    model = chain(layer)
    model.compile("sgd", "mse", jit_compile=False)
    with remat.applied(model, 4):
        model.fit(*data(model), batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(layer.kept, [1 / 7, 1 / 9], rtol=1e-6)


def test_nested_models_called_with_dictionaries_are_taken_apart():
    names = [call.name for call in layer_graph(task()).calls]
    assert sum(name.startswith("backbone/dense") for name in names) == 3


def test_nested_model_with_its_own_call_stays_whole():
    assert sum("doubled" in call.name for call in layer_graph(with_doubled()).calls) == 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda inputs: inputs + tf.random.normal(tf.shape(inputs), dtype=inputs.dtype), "RandomStandardNormal"),
        (lambda inputs: tf.map_fn(lambda row: row * tf.random.uniform([], dtype=row.dtype), inputs), "RandomUniform"),
    ],
)
def test_random_numbers_of_tensorflow_are_refused(function, words):
    model = chain(layers.Lambda(function, name="noise"))
    model.compile("sgd", "mse", jit_compile=False)
    with remat.applied(model, 4), pytest.raises(InputError, match=f"noise.*{words}.*keras.random"):
        model.fit(*data(model), batch_size=BATCH, verbose=0)


def test_writes_to_raw_variables_are_refused():
    count = tf.Variable(0)

    def counted(inputs):
        count.assign_add(1)
        return inputs

    model = chain(layers.Lambda(counted, name="counted"))
    model.compile("sgd", "mse", jit_compile=False)
    with remat.applied(model, 4), pytest.raises(InputError, match=r"counted.*add_weight"):
        model.fit(*data(model), batch_size=BATCH, verbose=0)


def test_updates_inside_a_loop_are_refused():
    class Looping(layers.Layer):
        def build(self, shape):
            self.count = self.add_weight(initializer="zeros", trainable=False)

        def call(self, inputs):
            return tf.map_fn(lambda row: row + self.count.assign(self.count + 1), inputs)

    model = chain(Looping())
    model.compile("sgd", "mse", jit_compile=False)
    with remat.applied(model, 4), pytest.raises(InputError, match="inside a loop"):
        model.fit(*data(model), batch_size=BATCH, verbose=0)


@pytest.mark.slow
def test_names_choose_layers_of_a_model_with_its_own_call():
    names = [layer.name for layer in subclassed().blocks[:2]]
    assert_same(trained(subclassed, names), trained(subclassed, None))
    with pytest.raises(InputError, match=r"does not have: nothing.*block"):
        remat.check(subclassed(), ["nothing"])


def test_a_plan_inside_another_restores_what_was_there():
    model = chain(layers.Dropout(0.2))
    model.compile("sgd", "mse", jit_compile=False)
    with remat.applied(model, 3):
        outer = model.call
        with remat.applied(model, 4):
            model.fit(*data(model), batch_size=BATCH, verbose=0)
        assert model.call is outer
        model.fit(*data(model), batch_size=BATCH, verbose=0)
    assert "call" not in vars(model)


def test_a_call_that_the_user_has_set_is_kept():
    model = chain()
    model.compile("sgd", "mse", jit_compile=False)

    def call(inputs, training=None, mask=None):
        return type(model).call(model, inputs, training=training)

    vars(model)["call"] = call
    with remat.applied(model, 3):
        model.fit(*data(model), batch_size=BATCH, verbose=0)
    assert vars(model)["call"] is call


def test_checks_leave_the_model_alone():
    model = chain(layers.Dropout(0.2))
    model.compile("sgd", "mse")
    before = dict(vars(model))
    assert remat.check(model, 4).grade == "exact"
    assert vars(model) == before


@pytest.mark.parametrize(("layer", "grade"), [(layers.Dropout(0.5), "close"), (layers.ReLU(), "exact")])
def test_other_random_numbers_under_xla_are_not_called_exact(layer, grade):
    model = chain(layer)
    model.compile("sgd", "mse", jit_compile=False)
    assert compile_mode.check(model, True).grade == grade
    assert compile_mode.check(model, False).grade == "exact"
