"""`memfit.verify`: what is the same is proven, what differs is named, and nothing is left behind."""

import subprocess
import sys
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.compat.step_function import StepFunction
from memfit.errors import NotExactError
from memfit.techniques import batch_state, sliced_step, slices

ROWS = 12
X = np.random.default_rng(0).normal(size=(ROWS, 8)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, ROWS)
WEIGHTS = np.random.default_rng(2).uniform(0.5, 2, ROWS).astype("float32")


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch):
    monkeypatch.setenv("MEMFIT_CACHE", "off")
    monkeypatch.setattr("memfit.verification.remembered._in_this_process", {})


class Counting(layers.Layer):
    """Counts its calls, in a variable."""

    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, inputs):
        self.calls.assign(self.calls + 1.0)
        return inputs


class OverTheBatch(layers.Layer):
    """Mixes the samples of a batch."""

    def call(self, inputs):
        return inputs - keras.ops.mean(inputs, axis=0, keepdims=True)


def network(*extra, loss=None, **settings):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,))
    tensor = layers.Dense(8, activation="relu", name="first")(inputs)
    for layer in extra:
        tensor = layer(tensor)
    tensor = layers.Dense(8, activation="tanh", name="second")(tensor)
    model = keras.Model(inputs, layers.Dense(3, name="last")(tensor))
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=[keras.metrics.SparseCategoricalAccuracy()], **settings)
    return model


def state(model):
    return [np.array(each) for each in [*model.variables, *model.optimizer.variables, *model.metrics_variables]]


def test_an_exact_plan_is_proven_and_everything_put_back():
    model = network(layers.Dropout(0.5, seed=1), layers.BatchNormalization(), Counting())
    model.fit(X, Y, batch_size=6, verbose=0)
    before = state(model)
    found = memfit.verify(model, memfit.Plan(remat=3), (X, Y, WEIGHTS))
    assert found.exact, found
    assert "same result to rounding" in str(found)
    for value, expected in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_what_differs_is_named_with_a_way_to_accept_it():
    model = network(OverTheBatch())
    found = memfit.verify(model, memfit.Plan(micro_batch=4), (X, Y))
    assert not found.exact
    assert "differs by" in found.reason
    assert "loss" in str(found)
    before = state(model)
    with pytest.raises(NotExactError, match=r'micro_batch=4 does not train .* numerics="close"'):
        memfit.fit(model, X, Y, batch_size=8, verbose=0, plan=memfit.Plan(micro_batch=4))
    for value, expected in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(value, expected)
    memfit.fit(model, X, Y, batch_size=8, verbose=0, plan=memfit.Plan(micro_batch=4), numerics="close")


def test_a_model_that_runs_eagerly_is_verified_too():
    plan = memfit.Plan(micro_batch=4)
    memfit.fit(network(run_eagerly=True), X, Y, batch_size=8, verbose=0, plan=plan)
    with pytest.raises(NotExactError, match="differs by"):
        memfit.fit(network(OverTheBatch(), run_eagerly=True), X, Y, batch_size=8, verbose=0, plan=plan)


def test_randomness_that_cannot_be_repeated_cannot_be_proven():
    noise = layers.Lambda(lambda tensor: tensor + tf.random.normal(tf.shape(tensor)))
    found = memfit.verify(network(noise), memfit.Plan(micro_batch=4), (X, Y))
    assert not found.exact
    assert "random numbers that cannot be repeated" in str(found)


def test_zeros_do_not_hide_what_lies_behind_them():
    """A layer whose weights are zero passes no gradient on: only moved weights show what is wrong before it."""
    model = network(OverTheBatch(), layers.Dense(8, kernel_initializer="zeros"))
    assert not memfit.verify(model, memfit.Plan(micro_batch=4), (X, Y)).exact


def test_the_planner_does_without_what_is_not_exact():
    planner = memfit.Planner(network(OverTheBatch()), 64, gpu="RTX 3060", jit=False, data=(X, Y))
    planner.plan("24GiB")
    assert planner._disproved(memfit.Plan(micro_batch=16))
    assert "it changes the result" in planner._refused.get("micro_batch", "") or planner.search.slices is None


# Each of these breaks one thing that makes a step in slices the plain step.
def same_rows_for_every_slice(monkeypatch):
    original = slices._rows
    monkeypatch.setattr(slices, "_rows", lambda tensor, _start, rows: original(tensor, 0, rows))


def other_random_numbers(monkeypatch):
    monkeypatch.setattr(sliced_step, "whole_batch_random", lambda *_arguments, **_settings: nullcontext())


def forgotten_state(monkeypatch):
    monkeypatch.setattr(batch_state.BatchState, "after", lambda *_arguments, **_settings: [])


def slices_that_all_count_the_same(monkeypatch):
    monkeypatch.setattr(slices.Slices, "_share", lambda _self, _rows: tf.constant(0.5, tf.float64))


@pytest.mark.parametrize(
    "break_it", [same_rows_for_every_slice, other_random_numbers, forgotten_state, slices_that_all_count_the_same]
)
def test_a_step_in_slices_that_is_broken_is_caught(break_it, monkeypatch):
    model = network(layers.Dropout(0.5, seed=1), Counting())
    plan = memfit.Plan(micro_batch=4)
    assert memfit.verify(model, plan, (X, Y, WEIGHTS)).exact
    monkeypatch.setattr("memfit.verification.remembered._in_this_process", {})
    break_it(monkeypatch)
    assert memfit.verify(model, plan, (X, Y, WEIGHTS)).differences


class OtherMaskTheSecondTime(layers.Layer):
    """A layer that does not compute again what it computed first."""

    calls = 0

    def call(self, inputs):
        OtherMaskTheSecondTime.calls += 1
        mask = np.random.default_rng(self.calls).integers(0, 2, 8)
        return inputs * keras.ops.cast(mask, inputs.dtype)


def test_recomputation_of_something_else_is_caught(monkeypatch):
    trace = StepFunction.trace

    def traced_anew(self, spec):
        OtherMaskTheSecondTime.calls = 0
        trace(self, spec)

    monkeypatch.setattr(StepFunction, "trace", traced_anew)
    model = network(OtherMaskTheSecondTime(), layers.Dense(8))
    assert memfit.verify(model, memfit.Plan(remat=("first..second",)), (X, Y)).differences


CHILD = """
import sys, time
import keras, numpy as np
import memfit

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
data = np.ones((8, 8), "float32"), np.ones((8, 1), "float32")
print(memfit.verify(model, memfit.Plan(micro_batch=2), data).remembered)
"""


def test_it_is_remembered_from_one_process_to_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMFIT_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "script.py"
    script.write_text(CHILD)

    def remembered():
        child = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
        return child.stdout.strip()

    assert [remembered(), remembered()] == ["False", "True"]
    script.write_text(CHILD + "# other code\n")
    assert remembered() == "False"
