"""`memfit.layers`: blocks that behave like any Keras layer, also under every technique."""

import keras
import numpy as np
import pytest

import memfit
from memfit.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(8, 12, 12, 4)).astype("float32")
Y = RANDOM.integers(0, 3, 8)


def network(dtype=None):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((12, 12, 4))
    features = memfit.layers.SeparableBlock(8, strides=2, activation="silu", dtype=dtype)(inputs)
    features = memfit.layers.InvertedResidual(8, expansion=2, dtype=dtype)(features)
    features = memfit.layers.InvertedResidual(6, strides=2, expansion=1, dtype=dtype)(features)
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.GlobalAveragePooling2D()(features)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def test_they_are_saved_and_loaded(tmp_path):
    model = network()
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-5)


def test_the_shapes_are_those_of_the_parts():
    model = network()
    assert [tuple(layer.output.shape[1:]) for layer in model.layers[1:4]] == [(6, 6, 8), (6, 6, 8), (3, 3, 6)]
    block = memfit.layers.InvertedResidual(6, strides=2)
    assert block.compute_output_shape((None, 7, None, 4)) == (None, 4, None, 6)


def test_a_shortcut_is_added_where_shapes_allow_it():
    block = memfit.layers.InvertedResidual(4)
    block.build((None, 12, 12, 4))
    block.steps[-1].gamma.assign(np.zeros(4))  # the last normalisation
    np.testing.assert_allclose(block(X), X, atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_reaches_every_part(policy):
    model = network(dtype=policy)
    for layer in model.layers[1].steps:
        assert layer.compute_dtype == policy.removeprefix("mixed_")
        assert all(each.dtype == "float32" for each in layer.weights)


def test_recomputed_and_in_slices_it_is_the_same_training():
    plain, planned = network(), network()
    for model in (plain, planned):
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.trainable = False  # so that slices are exact
        model.compile(keras.optimizers.SGD(0.1), plain.loss, jit_compile=False)
    plain.fit(X, Y, batch_size=8, verbose=0, shuffle=False)
    plan = memfit.Plan(remat=2, micro_batch=2)
    memfit.fit(planned, X, Y, batch_size=8, verbose=0, shuffle=False, plan=plan)
    for one, other in zip(plain.get_weights(), planned.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_mixed_precision_can_be_put_on_by_a_plan():
    plan = memfit.Plan(precision="mixed_float16", remat=2)
    history = memfit.fit(network(), X, Y, batch_size=4, verbose=0, plan=plan)
    assert np.isfinite(history.history["loss"][0])


@pytest.mark.parametrize(
    "settings", [{"filters": 0}, {"filters": 4, "kernel_size": True}, {"filters": 4, "strides": 1.5}]
)
def test_what_is_no_count_is_refused(settings):
    with pytest.raises(InputError, match="expected a whole number"):
        memfit.layers.SeparableBlock(**settings)
