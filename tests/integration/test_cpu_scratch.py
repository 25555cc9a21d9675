"""Scratch memory of TensorFlow's own CPU kernels, and an optimizer that there is no memory for."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.compat.optimizers import built_whole

# An allocator, and oneDNN, can be chosen only once in a process.
CHILD = """
import json, sys
import memfit
memfit.devices.configure(limit="1GiB")
import keras, numpy as np
from keras import layers

keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.Input((28, 28, 1)),
    layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
    layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu"),
    layers.Conv2D(1, 3, padding="same"),
])
model.compile("adam", "mse", jit_compile=False)
x = np.random.default_rng(0).normal(size=(16, 28, 28, 1)).astype("float32")
plan = memfit.Plan(**json.loads(sys.argv[1]))
with memfit.applied(model, plan):
    predicted = memfit.estimate(model, 8, gpu="cpu", jit=False).steady_peak
    model.fit(x, x, batch_size=8, epochs=2, verbose=0)
print(json.dumps({
    "peak": memfit.devices.memory()[0].peak,
    "predicted": predicted.value,
    "weights": [np.asarray(each).tolist() for each in model.get_weights()],
    "planned": memfit.plan(model, 8, "20MiB", gpu="cpu", jit=False).techniques,
}))
"""


def trained(**plan):
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(plan)], capture_output=True, text=True, check=True, env=environment
    )
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_cap_takes_the_buffers_of_patches_away_and_changes_nothing_else():
    plain, capped = trained(), trained(workspace="1MiB")
    for value, expected in zip(capped["weights"], plain["weights"], strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
    assert plain["peak"] > 30 * 2**20 > 20 * 2**20 > capped["peak"]
    assert plain["predicted"] > 25 * 2**20 > 15 * 2**20 > capped["predicted"]
    assert plain["planned"] == {"workspace": "1MiB"}


def test_no_convolution_is_labelled_where_xla_compiles():
    model = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3)])
    model.compile("sgd", "mse", jit_compile=True)
    x = np.zeros((2, 8, 8, 1), "float32")
    with memfit.applied(model, memfit.Plan(workspace="1MiB")):
        assert np.isfinite(model.train_on_batch(x, np.zeros((2, 6, 6, 4), "float32")))


def test_an_optimizer_that_there_is_no_memory_for_is_built_the_next_time(monkeypatch):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)])
    model.compile("rmsprop", "mse")
    optimizer, full = model.optimizer, [True]
    original = type(optimizer).add_variable_from_reference

    def add(self, *args, **kwargs):
        if full and len(self._variables) > 3:
            full.clear()
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(optimizer), "add_variable_from_reference", add)
    with pytest.raises(tf.errors.ResourceExhaustedError), built_whole([optimizer]):
        optimizer.build(model.trainable_variables)
    assert not optimizer.built
    model.fit(np.zeros((2, 4)), np.zeros((2, 1)), verbose=0)
    assert len(optimizer.variables) == 2 + 4
