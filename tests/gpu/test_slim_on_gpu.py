"""Slimmed, pruned and rounded models train on the GPU, with and without XLA. Run this by hand: CI has no GPU."""

import textwrap

import pytest

from memfit.hardware.probe import probe

pytestmark = pytest.mark.gpu
VISIBLE = {"CUDA_VISIBLE_DEVICES": "0"}

TRAIN = """
    import memfit
    memfit.devices.configure(growth=True)
    import keras, numpy as np
    from keras import layers

    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 32, 32, 3)).astype("float32"), random.integers(0, 4, 64)
    inputs = features = keras.Input((32, 32, 3))
    for filters in (32, 64):
        features = layers.Conv2D(filters, 3, padding="same", use_bias=False)(features)
        features = layers.ReLU()(layers.BatchNormalization()(features))
    features = memfit.layers.SeparableBlock(64)(features)
    outputs = layers.Dense(4)(layers.GlobalAveragePooling2D()(features))
    model = keras.Model(inputs, outputs)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=jit)
    plans = [None, memfit.Plan(remat=2, micro_batch=16), memfit.Plan(precision="mixed_float16")]

    def trains(variant, *callbacks):
        assert variant.jit_compile is jit
        losses = [
            # Batch normalization sees each slice alone.
            memfit.fit(
                variant, x, y, batch_size=32, epochs=2, verbose=0, callbacks=[*callbacks], plan=plan, numerics="close"
            )
            for plan in plans
        ]
        assert np.isfinite([each.history["loss"] for each in losses]).all()

    trains(memfit.slim(model, separable=True))
    trains(memfit.slim(model, width=0.5))
    pruning = memfit.compress.prune(model, 0.8, schedule="constant")
    trains(model, pruning)
    aware = memfit.compress.quantization_aware(model)
    trains(aware)
    found = memfit.compress.quantize(aware, file, calibration=x, data=(x, y))
    report([pruning.report().sparsity, found.file_bytes / found.float32_file_bytes])
"""


@pytest.fixture(scope="module", autouse=True)
def needs_gpu():
    if not probe(timeout=120).gpus:
        pytest.skip("TensorFlow sees no GPU here")


@pytest.mark.parametrize("jit", [False, True])
def test_every_kind_trains(jit, tmp_path, run_child):
    settings = f"jit, file = {jit}, {str(tmp_path / 'model.tflite')!r}\n"
    sparsity, share = run_child(settings + textwrap.dedent(TRAIN), **VISIBLE)
    assert sparsity == pytest.approx(0.8, abs=0.01)
    assert share < 0.5
