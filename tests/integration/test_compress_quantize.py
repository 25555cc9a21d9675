"""`memfit.compress.quantize` and quantization-aware training: small files that answer alike."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(64, 12, 12, 3)).astype("float32")
Y = (X[..., 0].mean((1, 2)) > 0).astype("int32")


def network(dtype=None, width=64):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((12, 12, 3))
    features = layers.Conv2D(width, 3, padding="same", use_bias=False, dtype=dtype)(inputs)
    features = layers.ReLU(dtype=dtype)(layers.BatchNormalization(dtype=dtype)(features))
    kept = features
    features = layers.Conv2D(width, 3, padding="same", activation="relu", dtype=dtype)(features)
    features = layers.Add(dtype=dtype)([kept, features])
    features = layers.GlobalAveragePooling2D(dtype=dtype)(features)
    model = keras.Model(inputs, layers.Dense(2, dtype="float32")(features))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


@pytest.fixture(scope="module")
def trained():
    model = network()
    model.fit(X, Y, epochs=2, verbose=0)
    return model


@pytest.mark.parametrize(("scheme", "most"), [("int8", 0.35), ("dynamic", 0.35), ("float16", 0.6)])
def test_files_are_small_and_answer_alike(trained, tmp_path, scheme, most):
    calibration = X if scheme == "int8" else None
    found = memfit.compress.quantize(
        trained, tmp_path / "model.tflite", scheme=scheme, calibration=calibration, data=(X, Y)
    )
    assert found.file_bytes == (tmp_path / "model.tflite").stat().st_size < most * found.float32_file_bytes
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]
    expected = trained.predict(X, verbose=0)
    assert np.abs(found.predict(X) - expected).max() < 0.15 * np.abs(expected).max()
    assert found.evaluate((X, Y)) == found.accuracy
    assert abs(found.accuracy - found.float32_accuracy) < 0.1
    assert json.loads(json.dumps(found.to_dict()))["scheme"] == scheme
    for text in (str(found), found._repr_html_()):
        assert "of float32" in text
        assert "training takes as much memory as before" in text


def test_activations_are_counted(trained, tmp_path):
    found = memfit.compress.quantize(trained, tmp_path / "model.tflite", calibration=X)
    # The sum needs both of its terms, and has a result: three pictures of 64 channels.
    pictures = 12 * 12 * 64
    assert 3 * pictures * 4 <= found.float32_activation_peak <= 3 * pictures * 4 + 4096
    assert found.activation_peak < 0.3 * found.float32_activation_peak


def test_calibration_from_a_training_dataset(trained, tmp_path):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    found = memfit.compress.quantize(trained, tmp_path / "model.tflite", calibration=data, data=data)
    assert found.accuracy is not None


def test_two_inputs(tmp_path):
    first, second = keras.Input((4,), name="b"), keras.Input((6,), name="a")
    model = keras.Model([first, second], layers.Dense(2)(layers.Concatenate()([first, second])))
    inputs = [RANDOM.normal(size=(8, 4)), RANDOM.normal(size=(8, 6))]
    found = memfit.compress.quantize(model, tmp_path / "model.tflite", calibration=inputs)
    expected = model.predict(inputs, verbose=0)
    assert np.abs(found.predict(inputs) - expected).max() < 0.1 * np.abs(expected).max()


def test_mixed_precision_models_are_quantized_too(tmp_path):
    model = network(dtype="mixed_float16")
    found = memfit.compress.quantize(model, tmp_path / "model.tflite", calibration=X)
    expected = model.predict(X, verbose=0)
    assert np.abs(found.predict(X) - expected).max() < 0.15 * np.abs(expected).max() + 0.01


def test_folding_normalisation_changes_no_answer(trained):
    from memfit.compress.fold import folded

    found = folded(trained)
    assert not any(isinstance(layer, layers.BatchNormalization) for layer in found.layers)
    np.testing.assert_allclose(found.predict(X, verbose=0), trained.predict(X, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "plan",
    [
        memfit.Plan(remat=2, micro_batch=8, precision="mixed_float16"),
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param(memfit.Plan(remat=2, micro_batch=8), marks=pytest.mark.slow),
        pytest.param(memfit.Plan(precision="mixed_float16"), marks=pytest.mark.slow),
    ],
    ids=["all", "plain", "slices", "mixed"],
)
def test_training_that_sees_the_rounding(trained, tmp_path, plan):
    aware = memfit.compress.quantization_aware(trained)
    before = [each.numpy() for each in aware.trainable_variables]
    np.testing.assert_allclose(aware.predict(X, verbose=0), trained.predict(X, verbose=0), rtol=0.1, atol=0.05)
    # The ranges that values are rounded to follow the batch, so slices are rounded to others.
    memfit.fit(aware, X, Y, batch_size=32, epochs=2, verbose=0, plan=plan, numerics="close")
    assert all((old != new.numpy()).any() for old, new in zip(before, aware.trainable_variables, strict=True))
    aware.save(tmp_path / "aware.keras")
    loaded = keras.models.load_model(tmp_path / "aware.keras")
    expected = aware.predict(X, verbose=0)
    np.testing.assert_allclose(loaded.predict(X, verbose=0), expected, rtol=1e-4, atol=1e-5)
    plain = memfit.compress.strip(aware)
    assert not any("rounded" in layer.name for layer in plain.layers)
    found = memfit.compress.quantize(aware, tmp_path / "model.tflite", calibration=X)
    assert np.abs(found.predict(X) - expected).max() < 0.1 * np.abs(expected).max() + 0.01


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scheme": "int4"}, "scheme='int4'"),
        ({}, "needs calibration="),
        ({"calibration": X[:, :8]}, r"shape \(8, 12, 3\).*takes \(12, 12, 3\)"),
        ({"calibration": [X, X]}, "calibration has samples"),
        ({"calibration": X[:0]}, "calibration is empty"),
    ],
)
def test_what_cannot_be_quantized_is_said(settings, says, tmp_path):
    model = network(width=4)
    with pytest.raises(InputError, match=says):
        memfit.compress.quantize(model, tmp_path / "model.tflite", **settings)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_kept(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"mine")
    with pytest.raises(InputError, match="force=True"):
        memfit.compress.quantize(network(width=4), tmp_path / "model.tflite", scheme="dynamic")
    assert (tmp_path / "model.tflite").read_bytes() == b"mine"
    with pytest.raises(InputError, match="do not go with"):
        memfit.compress.quantize(
            network(width=4), tmp_path / "model.tflite", scheme="dynamic", data=(X, Y[:, None].repeat(3, 1)), force=True
        )
    assert [each.name for each in tmp_path.iterdir()] == ["model.tflite"]
    assert (tmp_path / "model.tflite").read_bytes() == b"mine"


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        memfit.compress.quantize(network(width=4), tmp_path / "nowhere" / "model.tflite", scheme="dynamic")
    with pytest.raises(InputError, match="there is no folder"):
        memfit.compress.export(network(width=4), tmp_path / "nowhere" / "model.keras")
