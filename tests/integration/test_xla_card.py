"""Compiling a step with TensorFlow's own XLA before it runs; a processor stands in for the GPU."""

import json

import keras
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.compat.compiler_ir import optimised_hlo
from memfit.estimation import phases
from memfit.estimation.xla import card
from memfit.estimation.xla.hlo import lower_to_hlo
from memfit.trace.batch import batch_spec
from memfit.trace.function import step_function
from memfit.trace.tracer import build

BATCH = 16


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


@pytest.fixture
def lowered(model):
    spec = batch_spec(model, None)
    build(model, spec, BATCH)
    return lower_to_hlo(step_function(model, "train"), spec(BATCH))


def test_a_child_compiles_what_this_process_would(lowered):
    device = tf.config.list_logical_devices("CPU")[0].name
    optimised = optimised_hlo(lowered.function.name, lowered.arguments, lowered.function.captured_inputs, device)
    here = card.read_on_card(optimised, None)
    peak, _, answer = card._compile_in_child(lowered).partition(b"\n")
    apart = card.read_on_card(answer, json.loads(peak))
    assert apart.temp_bytes == here.temp_bytes > 0
    assert apart.argument_bytes == here.argument_bytes
    assert apart.is_timed


def test_variables_are_updated_in_place(lowered, model):
    device = tf.config.list_logical_devices("CPU")[0].name
    compiled = card.read_on_card(
        optimised_hlo(lowered.function.name, lowered.arguments, lowered.function.captured_inputs, device), None
    )
    trained = sum(int(each.value.dtype.size) * each.value.shape.num_elements() for each in model.trainable_variables)
    assert compiled.alias_bytes >= 3 * trained


@pytest.fixture
def on_this_machine(monkeypatch):
    """Take this processor for the card."""
    monkeypatch.setenv("MEMFIT_CACHE", "off")
    monkeypatch.setattr(phases, "is_here", lambda gpu: True)


def test_the_card_that_is_here_is_asked_first(on_this_machine, model):
    estimate = memfit.estimate(model, batch_size=BATCH, gpu="H200", jit=True)
    assert estimate.method == "XLA on this machine's GPU"
    assert estimate.steady_peak.low < estimate.steady_peak.value < estimate.steady_peak.high
    assert estimate.at(2 * BATCH).steady_peak.value > estimate.steady_peak.value


def test_only_the_training_step_is_compiled_on_the_card(on_this_machine, model, monkeypatch):
    compiled = []
    compile_on_card = phases.compile_on_card
    monkeypatch.setattr(
        phases, "compile_on_card", lambda lowered, gpu: compiled.append(lowered) or compile_on_card(lowered, gpu)
    )
    monkeypatch.setattr(phases, "missing_packages", lambda: ("jax",))
    estimate = memfit.estimate(model, batch_size=BATCH, gpu="H200", jit=True)
    assert estimate.phases["predict"].value > 0
    assert len(compiled) == 1


def test_a_card_that_fails_is_done_without(on_this_machine, model, monkeypatch):
    def fail(lowered, gpu):
        raise card.CardError("the GPU is gone")

    monkeypatch.setattr(phases, "compile_on_card", fail)
    monkeypatch.setattr(phases, "missing_packages", lambda: ("jax",))
    estimate = memfit.estimate(model, batch_size=BATCH, gpu="H200", jit=True)
    assert estimate.method == "HLO liveness, since XLA failed on this machine's GPU"


def test_switched_off_nothing_is_compiled(on_this_machine, model, monkeypatch):
    monkeypatch.setenv("MEMFIT_XLA", "off")
    assert memfit.estimate(model, batch_size=BATCH, gpu="H200", jit=True).method == "HLO liveness"


def test_a_step_the_child_cannot_compile_says_why(lowered, monkeypatch):
    monkeypatch.setattr(card, "definitions_of", lambda concrete: [])
    with pytest.raises(card.CardError, match="compiling on this machine's GPU failed"):
        card._compile_in_child(lowered)
