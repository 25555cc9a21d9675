"""`memfit.slim`: the same inputs and outputs, cheaper inside; what cannot be done is said by name."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
from memfit.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(8, 16, 16, 3)).astype("float32")
Y = RANDOM.integers(0, 4, 8)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network(body, shape=(16, 16, 3)):
    """A small classifier around a body, compiled."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input(shape)
    features = body(layers.Conv2D(8, 3, padding="same", activation="relu", name="first")(inputs))
    model = keras.Model(inputs, layers.Dense(4, name="head")(layers.GlobalAveragePooling2D()(features)))
    model.compile("adam", LOSS, metrics=["accuracy"])
    return model


def residual(features):
    """Batch normalisation, an addition, a concatenation and a depthwise convolution."""
    kept = layers.Conv2D(8, 3, padding="same", name="left")(features)
    features = layers.BatchNormalization(name="norm")(layers.Conv2D(8, 3, padding="same", name="right")(features))
    features = layers.ReLU()(layers.Add()([features, kept]))
    features = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(features)
    features = layers.Concatenate()([features, layers.Conv2D(6, 1, name="beside")(features)])
    return layers.Conv2DTranspose(6, 2, strides=2, name="up")(features)


def unet():
    inputs = features = keras.Input((32, 32, 3))
    skips = []
    for filters in (8, 16):
        features = layers.Conv2D(filters, 3, padding="same", use_bias=False)(features)
        features = layers.ReLU()(layers.BatchNormalization()(features))
        skips.append(features)
        features = layers.MaxPooling2D()(features)
    features = layers.Conv2D(32, 3, padding="same", activation="relu")(features)
    for filters, skip in ((16, skips[1]), (8, skips[0])):
        features = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(features)
        features = layers.Conv2D(filters, 3, padding="same")(layers.Concatenate()([features, skip]))
    model = keras.Model(inputs, layers.Conv2D(4, 1)(features))
    model.compile("adam", LOSS)
    return model


def check_same_outside(model, smaller, tmp_path):
    """Output shapes are equal; it trains, is saved and loaded."""
    shape = model.inputs[0].shape[1:]
    assert [each.shape for each in smaller.outputs] == [each.shape for each in model.outputs]
    assert smaller.count_params() < model.count_params()
    x = RANDOM.normal(size=(4, *shape)).astype("float32")
    y = RANDOM.integers(0, 4, (4, *model.outputs[0].shape[1:-1]))
    before = smaller.get_weights()
    assert np.isfinite(smaller.fit(x, y, verbose=0).history["loss"][0])
    assert any((old != new).any() for old, new in zip(before, smaller.get_weights(), strict=True))
    smaller.save(tmp_path / "smaller.keras")
    loaded = keras.models.load_model(tmp_path / "smaller.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), smaller.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


WAYS = [{"separable": True}, {"width": 0.5}, {"kernel_size": 1, "width": 0.5}]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("build", [unet, lambda: network(residual)], ids=["unet", "residual"])
def test_small_models(build, way, tmp_path):
    model = build()
    check_same_outside(model, memfit.slim(model, **way), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("way", [{"separable": True}, {"width": 0.5}], ids=str)
@pytest.mark.parametrize("name", ["ResNet50", "VGG16"])
def test_applications(name, way, tmp_path):
    model = getattr(keras.applications, name)(
        weights=None, input_shape=(32, 32, 3), classes=4, classifier_activation=None
    )
    model.compile("sgd", LOSS)
    check_same_outside(model, memfit.slim(model, **way), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV3Small", "EfficientNetB0", "DenseNet121"])
def test_squeeze_and_excitation_and_dense_connections_can_be_narrowed(name):
    model = getattr(keras.applications, name)(weights=None, input_shape=(64, 64, 3), classes=4)
    smaller = memfit.slim(model, width=0.5)
    assert smaller.count_params() < 0.4 * model.count_params()
    assert np.isfinite(smaller.predict(np.zeros((1, 64, 64, 3)), verbose=0)).all()


def test_the_model_stays_as_it_is_and_keeps_its_first_layer():
    model = network(residual)
    before, expected = model.get_config(), model.predict(X, verbose=0)
    smaller = memfit.slim(model, separable=True)
    assert model.get_config() == before
    np.testing.assert_array_equal(model.predict(X, verbose=0), expected)
    kinds = {layer.name: type(layer).__name__ for layer in smaller.layers}
    assert (kinds["first"], kinds["left"], kinds["beside"]) == ("Conv2D", "SeparableConv2D", "Conv2D")
    assert smaller.optimizer is not model.optimizer
    np.testing.assert_array_equal(smaller.get_layer("first").kernel, model.get_layer("first").kernel)


def test_a_kernel_that_is_separable_gives_the_same_answers():
    model = network(lambda features: layers.Conv2D(6, 3, strides=2, name="inner")(features))
    inner = model.get_layer("inner")
    depthwise, pointwise = RANDOM.normal(size=(3, 3, 8, 1)), RANDOM.normal(size=(1, 1, 8, 6))
    inner.set_weights([depthwise * pointwise, RANDOM.normal(size=6)])
    smaller = memfit.slim(model, separable=["inner"])
    np.testing.assert_allclose(smaller.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_a_smaller_kernel_sees_the_same_places(padding, strides):
    model = network(lambda features: layers.Conv2D(6, 5, strides=strides, padding=padding, name="inner")(features))
    kernel, bias = model.get_layer("inner").get_weights()
    border = np.ones((5, 5), bool)
    border[1:4, 1:4] = False
    kernel[border] = 0
    model.get_layer("inner").set_weights([kernel, bias])
    smaller = memfit.slim(model, kernel_size=3)
    assert smaller.get_layer("inner").kernel_size == (3, 3)
    np.testing.assert_allclose(smaller.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5)


def test_removing_filters_that_do_nothing_changes_nothing():
    """Half of each layer's filters are zero, and normalisation leaves zeros alone: those are the ones that go."""
    model = network(residual)
    for name in ("first", "left", "right", "beside", "up"):
        layer = model.get_layer(name)
        kernel, bias = layer.get_weights()
        axis = -2 if name == "up" else -1
        dead = [slice(None)] * kernel.ndim
        dead[axis] = slice(0, None, 2)
        kernel[tuple(dead)] = 0
        bias[:] = 0
        layer.set_weights([kernel, bias])
    model.get_layer("norm").set_weights([RANDOM.uniform(0.5, 2, 8), np.zeros(8), np.zeros(8), np.ones(8)])
    smaller = memfit.slim(model, width=0.5)
    assert smaller.get_layer("left").filters == smaller.get_layer("right").filters == 4
    assert smaller.get_layer("depthwise").kernel.shape[-2] == 4
    assert smaller.get_layer("up").kernel.shape == (2, 2, 3, 4 + 3)
    np.testing.assert_allclose(smaller.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5)


def test_flattened_features_are_followed():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(10), layers.Dense(4)]
    )
    smaller = memfit.slim(model, width=0.5)
    assert [each.shape for each in smaller.weights[::2]] == [(3, 3, 3, 4), (144, 5), (5, 4)]


def test_nested_models_are_taken_apart():
    inside = keras.Sequential([keras.Input((14, 14, 8)), layers.Conv2D(8, 3, name="inner")], name="backbone")
    model = network(lambda features: inside(layers.Conv2D(8, 3)(features)))
    smaller = memfit.slim(model, separable=["backbone/inner"])
    assert type(smaller.get_layer("backbone_inner")).__name__ == "SeparableConv2D"


def test_by_size_only_large_kernels_are_separated():
    def body(features):
        return layers.Conv2D(8, 3, name="small")(layers.Conv2D(8, 5, name="large")(features))

    smaller = memfit.slim(network(body), separable=5)
    kinds = {layer.name: type(layer).__name__ for layer in smaller.layers}
    assert (kinds["small"], kinds["large"]) == ("Conv2D", "SeparableConv2D")


@pytest.mark.parametrize(
    "plan",
    [
        memfit.Plan(remat=2, micro_batch=2, precision="mixed_float16"),
        pytest.param(memfit.Plan(remat=2), marks=pytest.mark.slow),
        pytest.param(memfit.Plan(micro_batch=2), marks=pytest.mark.slow),
        pytest.param(memfit.Plan(precision="mixed_float16"), marks=pytest.mark.slow),
    ],
    ids=["all", "remat", "micro_batch", "precision"],
)
def test_after_and_before_planned_training(plan):
    model = network(residual)
    memfit.fit(model, X, Y, batch_size=4, verbose=0, plan=plan, numerics="close")
    smaller = memfit.slim(model, separable=True, width=0.5)
    history = memfit.fit(smaller, X, Y, batch_size=4, verbose=0, plan=plan, numerics="close")
    assert np.isfinite(history.history["loss"][0])


def shared(features):
    again = layers.Conv2D(8, 3, padding="same", name="twice")
    return again(again(features))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Dense(4)

    def build(self, shape):
        self.head.build(shape)

    def call(self, x):
        return self.head(x)


@pytest.mark.parametrize(
    ("body", "way", "says"),
    [
        (
            lambda x: layers.Conv2D(8, 3, groups=2, name="grouped")(x),
            {"separable": True},
            r"grouped \(grouped, groups=2",
        ),
        (lambda x: layers.Conv2D(8, 3, groups=2, name="grouped")(x), {"width": 0.5}, r"grouped \(grouped"),
        (lambda x: layers.Conv2D(8, 4, dilation_rate=2, name="wide")(x), {"separable": True}, r"wide \(dilated with"),
        (lambda x: layers.Conv2D(8, 4, dilation_rate=2, name="wide")(x), {"kernel_size": 2}, r"wide \(dilated with"),
        (lambda x: layers.Conv2D(8, 4, name="even")(x), {"kernel_size": 3}, r"even \(4x4\)"),
        (shared, {"separable": True}, "twice: called more than once"),
        (shared, {"width": 0.5}, r"twice \(called more than once"),
        (residual, {"separable": ["beside"]}, r"beside \(a 1x1 kernel"),
        (residual, {"separable": ["nowhere"]}, "nowhere is no Conv1D or Conv2D"),
        (residual, {"separable": -1}, "separable=-1"),
        (residual, {"width": 0}, "width=0"),
        (residual, {"width": 1.5}, "width=1.5"),
        (residual, {"kernel_size": 0}, "kernel_size=0"),
        (residual, {}, "not told what to do"),
    ],
)
def test_what_cannot_be_done_is_said_by_name(body, way, says):
    model = network(body)
    before = model.get_config()
    with pytest.raises(InputError, match=says):
        memfit.slim(model, **way)
    assert model.get_config() == before


def test_a_model_that_is_not_functional_is_refused():
    model = Subclassed()
    model.build((None, 8))
    with pytest.raises(InputError, match="is not Functional"):
        memfit.slim(model, separable=True)
    with pytest.raises(InputError, match="expected a Keras model"):
        memfit.slim("model", separable=True)
