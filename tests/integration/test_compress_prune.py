"""`memfit.compress`: pruning in training, reports, files, and filters that are really gone."""

import json

import keras
import numpy as np
import pytest
from keras import layers

import memfit
from memfit.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(32, 8, 8, 3)).astype("float32")
Y = RANDOM.integers(0, 4, 32)


def network(filters=16):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(filters, 3, name="first"),
            layers.BatchNormalization(),
            layers.Conv2D(filters, 3, activation="relu", name="second"),
            layers.Flatten(),
            layers.Dense(4, name="head"),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def trained(pruning, model, plan=None, **settings):
    settings = {"batch_size": 8, "epochs": 5, "verbose": 0, "callbacks": [pruning], **settings}
    return memfit.fit(model, X, Y, plan=plan, **settings)


@pytest.mark.parametrize("schedule", ["constant", "polynomial"])
def test_the_sparsity_asked_for_is_there_and_stays(schedule):
    model = network()
    pruning = memfit.compress.prune(model, 0.8, schedule=schedule, every=3)
    trained(pruning, model)
    report = pruning.report()
    assert [each.sparsity for each in report.layers] == pytest.approx([0.8] * 3, abs=0.01)
    assert "80" in str(report)
    assert "first" in report._repr_html_()
    assert json.loads(json.dumps(report.to_dict()))["sparsity"] == pytest.approx(0.8, abs=0.01)
    trained(pruning, model)
    assert pruning.report().sparsity == pytest.approx(0.8, abs=0.01)


def test_two_of_four_skips_what_does_not_come_in_fours():
    model = network()
    trained(memfit.compress.prune(model, pattern="2:4", schedule="constant"), model, epochs=1)
    report = memfit.compress.sparsity(model)
    assert [each.is_two_of_four for each in report.layers] == [False, True, True]
    assert report.layers[1].sparsity == 0.5


@pytest.mark.parametrize(
    "plan",
    [
        memfit.Plan(remat=2, micro_batch=4, precision="mixed_float16"),
        pytest.param(memfit.Plan(remat=2), marks=pytest.mark.slow),
        pytest.param(memfit.Plan(micro_batch=4), marks=pytest.mark.slow),
        pytest.param(memfit.Plan(precision="mixed_float16"), marks=pytest.mark.slow),
    ],
    ids=["all", "remat", "micro_batch", "precision"],
)
def test_planned_training_prunes_alike(plan):
    model = network()
    trained(memfit.compress.prune(model, 0.6, schedule="constant"), model, plan=plan, numerics="close", epochs=1)
    assert memfit.compress.sparsity(model).sparsity == pytest.approx(0.6, abs=0.01)


def test_stripped_weights_may_grow_back():
    model = network()
    pruning = memfit.compress.prune(model, 0.8, schedule="constant")
    trained(pruning, model, epochs=1)
    assert pruning.strip() is model
    trained(pruning, model, epochs=1)
    assert memfit.compress.sparsity(model).sparsity < 0.1


def test_a_pruned_model_is_a_smaller_file(tmp_path):
    dense, sparse = network(64), network(64)
    trained(memfit.compress.prune(sparse, 0.8, schedule="constant"), sparse, epochs=1)
    plain = memfit.compress.export(dense, tmp_path / "dense.keras")
    packed = memfit.compress.export(sparse, tmp_path / "sparse.keras")
    assert packed < 0.5 * plain
    loaded = keras.models.load_model(tmp_path / "sparse.keras")
    assert not loaded.compiled
    np.testing.assert_allclose(loaded.predict(X, verbose=0), sparse.predict(X, verbose=0), rtol=1e-5)
    with pytest.raises(InputError, match="force=True"):
        memfit.compress.export(sparse, tmp_path / "sparse.keras")
    with pytest.raises(InputError, match=r"must end in \.keras"):
        memfit.compress.export(sparse, tmp_path / "sparse.h5")


def test_filters_are_really_removed():
    model = network()
    smaller = memfit.compress.prune_filters(model, 0.5)
    assert [smaller.get_layer(name).filters for name in ("first", "second")] == [8, 8]
    one = memfit.compress.prune_filters(model, {"second": 0.25})
    assert [one.get_layer(name).filters for name in ("first", "second")] == [16, 12]
    assert one.output_shape == model.output_shape


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sparsity": 1.2}, "sparsity=1.2 must be a number from 0 to 1"),
        ({"sparsity": -0.1}, "sparsity=-0.1"),
        ({"sparsity": 1}, "less than 1"),
        ({"sparsity": 0.8, "pattern": "2:4"}, "must be 0.5"),
        ({"pattern": "2:4", "layers": ["first"]}, "first: .*in fours"),
        ({"pattern": "4:8"}, "unstructured"),
        ({"schedule": "cosine"}, "polynomial"),
        ({"layers": ["nowhere"]}, "nowhere is no convolution"),
        ({"every": 0}, "every=0"),
        ({"begin": 10, "end": 5}, "end=5"),
    ],
)
def test_what_cannot_be_pruned_is_said(settings, says):
    model = network()
    before = model.get_weights()
    with pytest.raises(InputError, match=says):
        memfit.compress.prune(model, **settings)
    assert all((old == new).all() for old, new in zip(before, model.get_weights(), strict=True))


def test_filters_that_cannot_be_removed_are_said():
    with pytest.raises(InputError, match="sparsity=2"):
        memfit.compress.prune_filters(network(), 2)
    with pytest.raises(InputError, match="head has no filters"):
        memfit.compress.prune_filters(network(), {"head": 0.5})
    with pytest.raises(InputError, match="was made for"):
        trained(memfit.compress.prune(network(), 0.5), network())
