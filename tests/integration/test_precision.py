"""Mixed precision put onto models that are built, and taken off again."""

import functools
import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from memfit.errors import InputError
from memfit.techniques import precision
from memfit.trace.function import trace

HALF = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


class Spy(layers.Layer):
    """Passes on what it gets, and notes its type each time it is traced."""

    seen: list[str] = []  # noqa: RUF012 (layers may not be asked for it: Keras tracks their lists)

    def call(self, inputs):
        Spy.seen.append(inputs.dtype.name)
        return inputs


@pytest.fixture(autouse=True)
def seed_and_spy():
    keras.utils.set_random_seed(0)
    Spy.seen.clear()


def cnn(dropout=0.0):
    inputs = keras.Input((8, 8, 3))
    hidden = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3)(inputs)))
    hidden = layers.Dropout(dropout)(Spy()(layers.GlobalAveragePooling2D()(hidden)))
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(hidden), name="cnn")


def sequential():
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), Spy(), layers.Dense(3)])


def nested():
    body_inputs = keras.Input((6,))
    body = keras.Model(body_inputs, Spy()(layers.Dense(8, activation="tanh")(body_inputs)))
    head = keras.Sequential([layers.Dense(5), layers.Dense(3)])
    inputs = keras.Input((6,))
    return keras.Model(inputs, head(body(inputs)))


def lstm():
    inputs = keras.Input((5, 4))
    hidden = Spy()(layers.LSTM(4)(inputs))
    return keras.Model(inputs, layers.Dense(3)(hidden))


def transformer():
    inputs = keras.Input((5,))  # float32, as people write it: 4999 is not a float16
    hidden = layers.Embedding(5000, 8)(inputs)
    hidden = layers.LayerNormalization()(hidden + Spy()(layers.MultiHeadAttention(2, 4)(hidden, hidden)))
    hidden = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, keras.ops.softmax(layers.Dense(3)(hidden)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.spy, self.last = layers.Dense(8, activation="relu"), Spy(), layers.Dense(3)

    def call(self, inputs, training=None):
        return self.last(self.spy(self.hidden(inputs)))


def subclassed():
    model = Subclassed()
    model(np.zeros((2, 6), "float32"))
    return model


SHAPES = {cnn: (8, 8, 3), sequential: (6,), nested: (6,), lstm: (5, 4), subclassed: (6,)}


def compiled(make=sequential, optimizer=None, **options):
    model = make()
    model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.9), "mse", **options)
    return model


def data(make=sequential):
    random = np.random.default_rng(1)
    y = random.random((16, 3), "float32")
    if make is transformer:
        return np.arange(4920, 5000).reshape(16, 5), y
    return random.normal(size=(16, *SHAPES[make])).astype("float32"), y


def fit(model, x, y, **options):
    return model.fit(x, y, batch_size=8, verbose=0, shuffle=False, **options).history["loss"]


@functools.cache
def trained_in_float32(make):
    keras.utils.set_random_seed(0)
    return fit(compiled(make), *data(make), epochs=3)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        *((make, "mixed_float16") for make in (cnn, sequential, subclassed)),
        (cnn, "mixed_bfloat16"),
        *(pytest.param(make, "mixed_float16", marks=pytest.mark.slow) for make in (nested, lstm, transformer)),
        *(pytest.param(make, "mixed_bfloat16", marks=pytest.mark.slow) for make in (lstm, transformer)),
    ],
)
def test_training_computes_in_half_precision_and_learns_the_same(make, value):
    x, y = data(make)
    expected = trained_in_float32(make)
    assert set(Spy.seen) <= {"float32"}
    keras.utils.set_random_seed(0)
    model = compiled(make)
    assert precision.check(model, value).grade == "close"
    Spy.seen.clear()
    with precision.applied(model, value):
        losses = fit(model, x, y, epochs=3)
        predicted = model.predict_on_batch(x[:2])
        assert {str(each.dtype) for each in model.trainable_variables} == {"float32"}
    assert set(Spy.seen) == {HALF[value]}
    assert predicted.dtype == (HALF[value] if make is subclassed else "float32")
    assert losses == pytest.approx(expected, rel=0.02 if value == "mixed_float16" else 0.1)
    assert losses != expected


def test_the_way_back_is_in_half_precision_too():
    model = compiled(cnn)
    with precision.applied(model, "mixed_float16"):
        spec = (tf.TensorSpec((8, 8, 8, 3)), tf.TensorSpec((8, 3)))
        operations = trace(model, "train", spec, gpu=False).graph.get_operations()
    convolutions = {each.type: each.outputs[0].dtype.name for each in operations if each.type.startswith("Conv2D")}
    assert convolutions["Conv2D"] == convolutions["Conv2DBackpropFilter"] == "float16"
    assert {each.outputs[0].dtype.name for each in operations if each.type == "MatMul"} == {"float32"}  # the output


def no_exit():
    pass


def raise_error():
    raise RuntimeError("the data ends here")


def raise_interrupt():
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def twin():
    """A model that never was anything but float32, with where it began, what it lost and where it ended."""
    keras.utils.set_random_seed(0)
    model = ready()
    start = everything(model)
    losses = fit(model, *data(cnn), epochs=2)
    return start, losses, everything(model)


def ready():
    model = compiled(lambda: cnn(dropout=0.2), metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def everything(model):
    return [each.numpy() for each in [*model.variables, *model.optimizer.variables]]


@pytest.mark.parametrize(
    ("value", "leave"),
    [
        ("mixed_float16", no_exit),
        ("mixed_float16", raise_error),
        ("mixed_float16", raise_interrupt),
        ("mixed_bfloat16", raise_interrupt),
    ],
)
def test_the_model_comes_out_as_it_went_in(twin, value, leave):
    x, y = data(cnn)
    model = ready()
    optimizer, slots = model.optimizer, model.optimizer.variables
    policies = [(layer, layer.dtype_policy) for layer in model._flatten_layers()]
    config, compile_config, variables = model.get_config(), model.get_compile_config(), model.variables
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: leave())
    try:
        with precision.applied(model, value):
            fit(model, x, y, callbacks=[callback])
    except (RuntimeError, KeyboardInterrupt):
        assert leave is not no_exit
    assert model.optimizer is optimizer
    assert [id(each) for each in optimizer.variables] == [id(each) for each in slots]
    assert [id(each) for each in model.variables] == [id(each) for each in variables]
    assert all(layer.dtype_policy is policy for layer, policy in policies)
    assert (model.get_config(), model.get_compile_config()) == (config, compile_config)
    assert model.train_function is model.test_function is model.predict_function is None
    start, losses, end = twin
    for variable, number in zip([*model.variables, *optimizer.variables], start, strict=True):
        variable.assign(number)
    Spy.seen.clear()
    assert fit(model, x, y, epochs=2) == losses
    assert set(Spy.seen) == {"float32"}
    assert all(map(np.array_equal, everything(model), end))


def test_checking_and_entering_changes_nothing(twin):
    start, losses, end = twin
    model = ready()
    model.make_train_function()
    function = model.train_function
    assert precision.check(model, "mixed_float16").grade == "close"
    assert model.train_function is function
    assert all(map(np.array_equal, everything(model), start))
    with precision.applied(model, "mixed_float16"):
        pass
    assert fit(model, *data(cnn), epochs=2) == losses
    assert all(map(np.array_equal, everything(model), end))


def test_an_optimizer_is_built_by_training_and_not_by_entering():
    model = compiled()
    with precision.applied(model, "mixed_float16"):
        assert not model.optimizer.built
    assert not model.optimizer.built


def test_losses_added_before_a_check_are_still_there():
    model = compiled(lambda: keras.Sequential([keras.Input((6,)), layers.ActivityRegularization(l2=1.0)]))
    model(np.ones((2, 6), "float32"))
    before = [float(each) for each in model.losses]
    precision.check(model, "mixed_bfloat16")
    assert [float(each) for each in model.losses] == before == [6.0]


def test_entering_that_fails_half_way_leaves_nothing_behind(monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    model = compiled(optimizer=keras.optimizers.SGD(loss_scale_factor=4.0))
    monkeypatch.setattr(keras.optimizers.LossScaleOptimizer, "__init__", fail)
    with pytest.raises(MemoryError), precision.applied(model, "mixed_float16"):
        pass
    assert {layer.compute_dtype for layer in model._flatten_layers()} == {"float32"}
    assert (type(model.optimizer).__name__, model.optimizer.loss_scale_factor) == ("SGD", 4.0)


def test_the_loss_scale_goes_on_where_it_was_and_the_optimizer_keeps_its_state():
    x, y = data()
    model = compiled(optimizer=keras.optimizers.Adam(0.01, loss_scale_factor=2.0))
    own = model.optimizer
    with precision.applied(model, "mixed_float16"):
        fit(model, x, y)
        assert model.optimizer.inner_optimizer is own
        model.optimizer.dynamic_scale.assign(64.0)
    assert own.loss_scale_factor == 2.0
    state = [each.numpy() for each in own.variables]
    with precision.applied(model, "mixed_float16"):
        assert (float(model.optimizer.dynamic_scale), int(model.optimizer.step_counter)) == (64.0, 2)
        for variable, number in zip(own.variables, state, strict=True):
            np.testing.assert_array_equal(variable.numpy(), number)
        fit(model, x, y)
        assert int(model.optimizer.step_counter) == 4
    assert int(own.iterations) == 4


def test_gradients_that_overflow_halve_the_scale_and_training_goes_on():
    x, y = data()
    model = compiled()
    with precision.applied(model, "mixed_float16"):
        fit(model, x * 100, y * 1000)
        assert float(model.optimizer.dynamic_scale) < 2.0**15
        assert np.isfinite(fit(model, x, y)).all()
    with precision.applied(model, "mixed_bfloat16"):
        assert type(model.optimizer) is keras.optimizers.SGD


def test_a_checkpoint_made_inside_is_loaded_with_its_optimizer_state(tmp_path):
    model = compiled()
    with precision.applied(model, "mixed_float16"):
        fit(model, *data())
        model.save(tmp_path / "inside.keras")
        saved = [each.numpy() for each in model.optimizer.variables]
    loaded = keras.saving.load_model(tmp_path / "inside.keras", custom_objects={"Spy": Spy})
    assert all(map(np.array_equal, [each.numpy() for each in loaded.optimizer.variables], saved))


def test_a_scaled_optimizer_is_not_wrapped_again():
    model = compiled(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))
    own = model.optimizer
    with precision.applied(model, "mixed_float16"):
        assert model.optimizer is own


def test_an_optimizer_is_freed_with_its_model():
    model = compiled()
    with precision.applied(model, "mixed_float16"):
        fit(model, *data())
    watched = weakref.ref(model.optimizer)
    del model
    keras.backend.clear_session()
    gc.collect()
    assert watched() is None


def test_an_optimizer_that_builds_whenever_asked_keeps_its_state():
    class Counting(keras.optimizers.Optimizer):
        def build(self, variables):
            super().build(variables)
            self.sums = [self.add_variable_from_reference(each, "sum") for each in variables]

        def update_step(self, gradient, variable, learning_rate):
            self.assign_add(self.sums[self._get_variable_index(variable)], gradient)

    x, y = data()
    model = compiled(optimizer=Counting(0.1))
    fit(model, x, y)
    slots, before = model.optimizer.variables, model.optimizer.sums[0].numpy()
    with precision.applied(model, "mixed_float16"):
        assert len(model.optimizer.inner_optimizer.variables) == len(slots)
        np.testing.assert_array_equal(model.optimizer.inner_optimizer.sums[0].numpy(), before)
        fit(model, x, y)
    np.testing.assert_allclose(model.optimizer.sums[0].numpy(), 2 * before, rtol=0.05, atol=0.01)


def test_what_reads_data_adds_losses_or_gives_outputs_stays_float32():
    inputs = keras.Input((6,))
    hidden = layers.Normalization(mean=1e6, variance=1e10)(inputs)  # 1e6 is infinite in float16
    hidden = layers.Dense(4, activity_regularizer="l2", name="regularised")(hidden)
    hidden = Spy()(layers.Dense(4)(hidden))
    size, kind = layers.Dense(1, name="size")(hidden), layers.Softmax(name="kind")(layers.Dense(3)(hidden))
    model = keras.Model(inputs, {"size": size, "kind": kind})
    model.compile("sgd", {"size": "mse", "kind": "categorical_crossentropy"})
    x = np.random.default_rng(1).normal(1e6, 1e5, (16, 6)).astype("float32")
    y = {"size": np.ones((16, 1)), "kind": np.ones((16, 3)) / 3}
    why = precision.check(model, "mixed_float16").why
    assert why.startswith("3 of 7 layers compute in float16")
    assert "4 stay float32: 'normalization" in why
    Spy.seen.clear()
    with precision.applied(model, "mixed_float16"):
        assert np.isfinite(fit(model, x, y, epochs=2)).all()
        assert {each.dtype.name for each in model.predict(x, verbose=0).values()} == {"float32"}
    assert set(Spy.seen) == {"float16"}


def test_in_a_mixed_model_only_what_is_mixed_changes():
    policies = ["mixed_float16", "float32", "mixed_float16"]
    stack = [layers.Dense(3, dtype=policy) for policy in policies]
    model = compiled(lambda: keras.Sequential([keras.Input((6,)), *stack]))
    with precision.applied(model, "mixed_bfloat16"):
        assert [layer.compute_dtype for layer in stack] == ["bfloat16", "float32", "bfloat16"]
    assert [layer.dtype_policy.name for layer in stack] == policies


def test_a_model_inside_does_not_keep_what_it_traced():
    inner = compiled()
    inputs = keras.Input((6,))
    model = compiled(lambda: keras.Model(inputs, layers.Dense(3)(inner(inputs))))
    x, _ = data()
    expected = inner.predict(x, verbose=0)
    with precision.applied(model, "mixed_bfloat16"):
        assert inner.predict(x, verbose=0).dtype == "bfloat16"
    np.testing.assert_array_equal(inner.predict(x, verbose=0), expected)


class OnlyFloat32(layers.Layer):
    def call(self, inputs):
        return inputs + tf.ones((3,), "float32")


class AddsLoss(layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.mean(inputs))
        return inputs


class Unscaled(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class Scaled(Unscaled):
    def train_step(self, data):
        return super().train_step(data)


def stack_with(layer):
    return lambda: keras.Sequential([keras.Input((6,)), layers.Dense(3), layer, layers.Dense(3)])


def quantized():
    model = sequential()
    model.layers[0].quantize("int8")
    return model


def unscaled(kind):
    inputs = keras.Input((6,))
    return lambda: kind(inputs, layers.Dense(3)(layers.Dense(3)(inputs)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (quantized, "'dense' is quantized (int8_from_float32)"),
        (stack_with(layers.Dense(3, dtype="float64", name="wide")), "'wide' computes in float64"),
        (stack_with(OnlyFloat32(autocast=False, name="stubborn")), "'stubborn' has autocast=False"),
        (stack_with(OnlyFloat32(name="fixed")), "'fixed' cannot compute in float16: TypeError: Input 'y' of 'AddV2'"),
        (stack_with(AddsLoss(name="penalty")), "'penalty' adds a loss in float16"),
        (unscaled(Unscaled), "Unscaled.train_step does not scale its loss"),
    ],
)
def test_what_cannot_is_refused_by_name(make, said):
    keras.backend.clear_session()
    model = compiled(make)
    policies = [layer.dtype_policy for layer in model._flatten_layers()]
    with pytest.raises(InputError) as refused:
        precision.check(model, "mixed_float16")
    assert said in str(refused.value)
    assert [layer.dtype_policy for layer in model._flatten_layers()] == policies


def test_a_training_step_that_calls_kerass_own_is_fine_and_bfloat16_needs_no_scale():
    assert precision.check(compiled(unscaled(Scaled)), "mixed_float16").grade == "close"
    assert precision.check(compiled(unscaled(Unscaled)), "mixed_bfloat16").grade == "close"


@pytest.mark.parametrize("value", ["float16", "fp16", None, 16, ["mixed_float16"]])
def test_another_value_is_refused_with_those_there_are(value):
    with pytest.raises(InputError, match="'mixed_float16', 'mixed_bfloat16'"):
        precision.check(compiled(), value)
    with pytest.raises(InputError, match="'mixed_float16', 'mixed_bfloat16'"), precision.applied(compiled(), value):
        pass


def test_a_subclassed_model_that_hides_its_inputs_is_not_tried_out():
    class TwoInputs(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = layers.Dense(3)

        def call(self, one, other):
            return self.last(one + other)

    model = TwoInputs()
    model(np.ones((2, 6), "float32"), np.ones((2, 6), "float32"))
    model.compile("sgd", "mse")
    assert "not tried out" in precision.check(model, "mixed_float16").why
    assert "not tried out" not in precision.check(compiled(subclassed), "mixed_float16").why
