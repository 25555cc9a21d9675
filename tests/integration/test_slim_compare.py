"""`memfit.compare`: two models side by side, and what was gained in words."""

import json

import keras
import numpy as np
import pytest
from keras import layers

import memfit
from memfit.errors import InputError


def network(filters=32, size=32):
    keras.utils.set_random_seed(0)
    body = []
    for _ in range(3):
        body += [layers.Conv2D(filters, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    model = keras.Sequential([keras.Input((size, size, 3)), *body, layers.GlobalAveragePooling2D(), layers.Dense(4)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


@pytest.fixture(scope="module")
def separable():
    model = network()
    x, y = np.zeros((6, 32, 32, 3), "float32"), np.zeros(6, int)
    slimmed = memfit.slim(model, separable=True)
    return memfit.compare(model, slimmed, batch_size=16, data=(x, y), gpu="RTX 3060", jit=False)


def test_work_is_counted(separable):
    pixels, first = 32 * 32, 2 * 27 * 32
    head = 2 * 32 * 4
    assert separable.first.forward_flops == pixels * (first + 2 * 2 * 9 * 32 * 32) + head
    assert separable.second.forward_flops == pixels * (first + 2 * 2 * (9 * 32 + 32 * 32)) + head


def test_a_peak_that_rises_is_said(separable):
    """Separable convolutions cut parameters and raise activation memory."""
    assert separable.second.parameters < separable.first.parameters
    assert separable.second.train_peak.value > separable.first.train_peak.value
    said = " ".join(separable.verdict.not_gained)
    assert "the peak of training rises by" in said
    assert "activations, not parameters, fill the memory" in said
    assert any("the number of parameters falls" in each for each in separable.verdict.gained)


def test_the_saved_file_is_the_weights_alone(separable):
    assert separable.first.file_bytes < 4 * separable.first.parameters + 64 * 1024


def test_it_can_be_read_by_people_and_programs(separable):
    text = str(separable)
    for word in ("parameters", "peak of training", "peak of predict", "accuracy", "not gained", "saved weights"):
        assert word in text
        assert word in separable._repr_html_()
    values = json.loads(json.dumps(separable.to_dict()))
    assert values["first"]["train_peak_bytes"] == separable.first.train_peak.value


def test_fewer_filters_lower_every_peak():
    model = network()
    found = memfit.compare(model, memfit.slim(model, width=0.5), batch_size=16, gpu="RTX 3060", jit=False)
    assert found.second.train_peak.value < 0.7 * found.first.train_peak.value
    assert found.second.predict_peak.value < 0.8 * found.first.predict_peak.value
    assert not any("peak" in each for each in found.verdict.not_gained)


@pytest.mark.slow
def test_measured_peaks_stand_beside_predicted_ones():
    model = network(size=64)
    found = memfit.compare(model, memfit.slim(model, width=0.5), batch_size=32, gpu="cpu", jit=False, measure=True)
    assert found.second.measured.predict_peak < 0.7 * found.first.measured.predict_peak
    assert "measured peak of predict" in str(found)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (np.zeros((6, 32, 32, 3)), r"arrays \(x, y\)"),
        ((np.zeros((6, 32, 32, 3)), np.zeros((6, 7))), "labels of shape"),
        ((np.zeros((0, 32, 32, 3)), np.zeros(0)), "empty"),
    ],
)
def test_data_that_cannot_be_used(data, says):
    model = network()
    with pytest.raises(InputError, match=says):
        memfit.compare(model, model, batch_size=4, data=data, gpu="RTX 3060", jit=False)
