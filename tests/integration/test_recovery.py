"""Running out of memory under a real limit of the CPU's allocator, and going on as if nothing had happened."""

import json
import subprocess
import sys

import numpy as np
import pytest

# Wide batches and narrow layers: activations are what there is; in float64, so that only mistakes show. Every run has a
# process and an allocator of its own.
CHILD = """
import json, sys, warnings
import numpy as np
import memfit
from memfit.errors import RecoveryWarning

given = json.loads(sys.argv[1])
memfit.devices.configure(limit=given["limit"])

import keras
import tensorflow as tf
from keras import layers

keras.config.set_floatx("float64")
keras.utils.set_random_seed(0)
inputs = tensor = keras.Input((64,))
for _ in range(10):
    tensor = layers.Dense(128, activation="relu")(tensor)
    tensor = layers.BatchNormalization()(tensor) if given["normalised"] else layers.Dropout(0.2)(tensor)
model = keras.Model(inputs, layers.Dense(4)(tensor))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"], jit_compile=given["jit"])

random = np.random.default_rng(0)
x, y = random.normal(size=(20_000, 64)), random.integers(0, 4, 20_000)
sizes = given["sizes"]
edges = np.cumsum([0, *sizes])
batches = [(x[a:b], y[a:b]) for a, b in zip(edges, edges[1:])]
shapes = (tf.TensorSpec((None, 64), "float64"), tf.TensorSpec((None,), "int64"))
train = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=shapes)
validation = tf.data.Dataset.from_tensors((x[: given["validation"]], y[: given["validation"]]))

class Elsewhere(keras.callbacks.Callback):
    # Somebody else takes memory in the middle of the first epoch.
    kept, told = None, []
    def on_train_batch_begin(self, batch, logs=None):
        if given["ballast"] and batch == 2 and self.kept is None:
            Elsewhere.kept = [tf.random.normal((2**18,)) for _ in range(given["ballast"])]
    def on_recovery(self, event):
        self.told.append([event.phase, event.step, sorted(event.techniques)])

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    settings = {"epochs": 2, "verbose": 0, "callbacks": [Elsewhere()], "recover": True}
    history = memfit.fit(model, train, validation_data=validation, **settings)
state = [*model.variables, *model.optimizer.variables]
np.savez(sys.argv[2], *[np.array(each) for each in state])
print(json.dumps({
    "history": history.history,
    "told": Elsewhere.told,
    "warned": sum(issubclass(each.category, RecoveryWarning) for each in caught),
}))
"""
PLENTY = "2GiB"
BATCHES = [2000, 2000, 2000, 2000, 1000]


def train(folder, name, *, limit=PLENTY, normalised=False, jit=False, sizes=BATCHES, validation=2000, ballast=0):
    given = {
        "limit": limit,
        "normalised": normalised,
        "jit": jit,
        "sizes": sizes,
        "validation": validation,
        "ballast": ballast,
    }
    path = folder / f"{name}.npz"
    child = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(given), str(path)], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr[-2000:]
    with np.load(path) as arrays:
        return json.loads(child.stdout.splitlines()[-1]), [arrays[each] for each in arrays.files]


def assert_as_if_nothing_had_happened(survived, plain):
    (said, state), (plain_said, plain_state) = survived, plain
    assert plain_said["told"] == []
    assert said["warned"] == len(said["told"]) >= 1
    for name, values in plain_said["history"].items():
        assert said["history"][name] == pytest.approx(values, rel=1e-5), name
    for value, plain_value in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(value, plain_value, rtol=0, atol=1e-5 * np.abs(plain_value).max() + 1e-9)
    return said["told"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recovery")


@pytest.fixture(scope="module")
def plain(folder):
    return train(folder, "plain")


@pytest.mark.slow
def test_the_first_step_does_not_fit(folder, plain):
    told = assert_as_if_nothing_had_happened(train(folder, "first", limit="40MiB"), plain)
    assert told[0] == ["train", 1, ["micro_batch"]]


@pytest.mark.slow
def test_somebody_else_takes_memory_in_the_middle_of_an_epoch(folder, plain):
    told = assert_as_if_nothing_had_happened(train(folder, "middle", limit="100MiB", ballast=65), plain)
    assert told[0] == ["train", 3, ["micro_batch"]]


@pytest.mark.slow
def test_the_last_batch_is_the_largest(folder):
    sizes = [500, 500, 500, 6000]
    plain = train(folder, "last-plain", sizes=sizes)
    told = assert_as_if_nothing_had_happened(train(folder, "last", sizes=sizes, limit="100MiB"), plain)
    assert told == [["train", 4, ["micro_batch"]]]


@pytest.mark.slow
def test_validation_takes_more_than_training(folder):
    few = [200, 200]
    plain = train(folder, "validation-plain", sizes=few, validation=20_000)
    told = assert_as_if_nothing_had_happened(
        train(folder, "validation", sizes=few, validation=20_000, limit="50MiB"), plain
    )
    assert told[0] == ["validation", 1, ["slices"]]


@pytest.mark.slow
def test_batch_normalisation_is_recomputed_instead_of_sliced(folder):
    plain = train(folder, "normalised-plain", normalised=True)
    told = assert_as_if_nothing_had_happened(train(folder, "normalised", normalised=True, limit="50MiB"), plain)
    assert {kind for _, _, (kind, *_) in told} == {"remat"}


@pytest.mark.slow
def test_compiled_with_xla(folder):
    plain = train(folder, "compiled-plain", jit=True)
    told = assert_as_if_nothing_had_happened(train(folder, "compiled", jit=True, limit="40MiB"), plain)
    assert told[0] == ["train", 1, ["micro_batch"]]
