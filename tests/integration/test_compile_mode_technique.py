"""XLA switched on and off for a model that is compiled already."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.python.framework import config
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from memfit.errors import InputError
from memfit.techniques import compile_mode


class Spy(layers.Layer):
    """Notes whether XLA compiles what it is traced into."""

    seen: list[bool] = []  # noqa: RUF012 (layers may not be asked for it: Keras tracks their lists)

    def call(self, inputs):
        Spy.seen.append(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
        return inputs


class NoXla(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.supports_jit = False

    def call(self, inputs):
        return inputs


X, Y = np.random.default_rng(0).normal(size=(16, 6)).astype("float32"), np.ones((16, 3), "float32")


def compiled(extra=(), **options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), Spy(), *extra, layers.Dense(3)], name="stack")
    model.compile("adam", "mse", **options)
    return model


def fit(model):
    Spy.seen.clear()
    return model.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False).history["loss"]


def test_training_is_compiled_by_xla_for_the_duration_and_equal_to_rounding():
    expected = fit(compiled())
    assert set(Spy.seen) == {False}
    model = compiled()
    assert compile_mode.check(model, True).grade == "exact"
    with compile_mode.applied(model, True):
        assert model.jit_compile is True
        assert fit(model) == pytest.approx(expected, rel=1e-5)
        assert set(Spy.seen) == {True}
    assert model.train_function is model.test_function is model.predict_function is None
    fit(model)
    assert set(Spy.seen) == {False}


def test_xla_is_switched_off_for_the_duration():
    model = compiled(jit_compile=True)
    assert compile_mode.check(model, False).grade == "exact"
    with compile_mode.applied(model, False):
        fit(model)
        assert set(Spy.seen) == {False}
    assert model.jit_compile is True


def stop():
    raise KeyboardInterrupt


@pytest.mark.parametrize("before", [None, False, True])
def test_what_was_set_comes_back_after_an_interrupt(before):
    model = compiled()
    model._jit_compile = before
    callback = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: stop())
    with pytest.raises(KeyboardInterrupt), compile_mode.applied(model, not before):
        model.fit(X, Y, verbose=0, callbacks=[callback])
    assert model._jit_compile is before
    assert model.train_function is None


def test_a_layer_without_xla_is_named():
    model = compiled(extra=[NoXla(name="lookup")])
    with pytest.raises(InputError, match="'lookup' does not support XLA"):
        compile_mode.check(model, True)
    with pytest.raises(InputError, match="'lookup'"), compile_mode.applied(model, True):
        pass
    assert compile_mode.check(model, False).grade == "exact"


def test_settings_that_keep_keras_from_xla_are_refused(monkeypatch):
    with pytest.raises(InputError, match="run_eagerly"):
        compile_mode.check(compiled(run_eagerly=True), True)
    monkeypatch.setattr(config, "is_op_determinism_enabled", lambda: True)
    with pytest.raises(InputError, match="determinism"):
        compile_mode.check(compiled(), True)


@pytest.mark.parametrize("value", ["auto", None, 1])
def test_only_true_and_false_are_taken(value):
    with pytest.raises(InputError, match=r"True .* or False"):
        compile_mode.check(compiled(), value)
