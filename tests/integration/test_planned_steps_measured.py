"""Steps with a plan against real runs of them: every run has to lie in the band that was predicted.

Run as a program with the name of a case, it prints the band and the peak of that case on the CPU's BFC allocator.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

BATCH = 16
# The order of a step on the CPU depends on addresses: runs of one step differ by up to 15 %.
RUNS = 3
PLANS = {
    "plain": {},
    "remat_4": {"remat": 4},
    "remat_7": {"remat": 7},
    "micro_batch": {"micro_batch": 2},
    "both": {"remat": 4, "micro_batch": 2},
}


def residual_cnn(blocks=12):
    import keras
    from keras import layers

    inputs = tensor = keras.Input((64, 64, 3))
    tensor = layers.Conv2D(32, 3, padding="same")(tensor)
    for _ in range(blocks):
        branch = layers.Conv2D(32, 3, padding="same")(tensor)
        branch = layers.ReLU()(layers.BatchNormalization()(branch))
        branch = layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same")(branch))
        tensor = layers.Dropout(0.1)(layers.ReLU()(layers.Add()([tensor, branch])))
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(tensor)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def run(name):
    """The predicted band of a case and what it takes."""
    import memfit
    from memfit.compat.cpu_allocator import take_one_region

    # As `memfit run` does.
    memfit.devices.configure(limit="8GiB")
    take_one_region(8 * 2**30)
    import tensorflow as tf

    model, plan = residual_cnn(), memfit.Plan(**PLANS[name])
    batch = tf.random.uniform((BATCH, 64, 64, 3)), tf.zeros((BATCH,), "int32")
    # The dataset keeps a batch of its own.
    resident = BATCH * (64 * 64 * 3 + 1) * 4
    # Batch normalization sees each slice alone.
    with memfit.applied(model, plan, numerics="close") if PLANS[name] else nullcontext():
        predicted = memfit.estimate(model, BATCH, gpu="cpu", jit=False, resident=resident).steady_peak
        dataset = tf.data.Dataset.from_tensors(batch)
        model.fit(dataset.repeat(3), verbose=0)
        memfit.devices.reset_peak()
        model.fit(dataset.repeat(6), verbose=0)
    return {"low": predicted.low, "high": predicted.high, "measured": memfit.devices.memory()[0].peak}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANS)
def test_every_run_lies_in_the_predicted_band(name):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    for _ in range(RUNS):
        child = subprocess.run(
            [sys.executable, __file__, name], env=environment, capture_output=True, text=True, check=True, timeout=600
        )
        peak = json.loads(child.stdout.splitlines()[-1])
        assert peak["low"] <= peak["measured"] <= peak["high"], peak


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))  # noqa: T201
