"""The models of the truth files, as they were measured: a truth row to a compiled Keras model."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from networks import NETWORKS as FIRST_NETWORKS
from networks import VOCABULARY
from published_networks import PUBLISHED

from memfit.framework import keras, tensorflow

Row = Mapping[str, Any]

NETWORKS = FIRST_NETWORKS | PUBLISHED

# Keras does not compile recurrent layers that cuDNN can run, whatever `jit_compile` says.
NOT_COMPILED = ("lstm", "gru", *(name for name, network in NETWORKS.items() if not network.compiled_by_xla))
_APPLICATION_CLASSES = 1000
_UNET_WIDTHS, _UNET_BOTTOM = (64, 128, 256, 512), 1024
_VOCABULARY = {"transformer": 8192, "lstm": 10000}


@contextmanager
def built(row: Row, *, jit: bool | str = "auto") -> Iterator[Any]:
    """The compiled model of a row, under its dtype policy; session and policy are put back afterwards."""
    config = keras().config
    before = config.dtype_policy()
    keras().backend.clear_session()
    config.set_dtype_policy(row.get("policy") or "float32")
    try:
        model = _BUILDERS.get(row["model"], _application(row["model"]))(row["size"])
        model.compile(_optimizer(row), _loss(row), jit_compile=jit)
        yield model
    finally:
        config.set_dtype_policy(before)
        keras().backend.clear_session()


def batch_of(row: Row, model: Any) -> tuple[Any, ...]:
    """One batch of random samples, as `fit` takes them from a data set."""
    network = NETWORKS.get(row["model"])
    random, count = np.random.default_rng(0), row["batch"]
    if network and network.inputs:
        shape, dtype = network.inputs(row["size"])
        return (random.random((count, *shape)).astype(dtype),)
    samples = [
        random.random((count, *each.shape[1:]), dtype="float32")
        if tensorflow().as_dtype(each.dtype).is_floating
        else random.integers(0, _VOCABULARY.get(row["model"], VOCABULARY), (count, *each.shape[1:])).astype("int32")
        for each in model.inputs
    ]
    x = samples[0] if len(samples) == 1 else tuple(samples)
    *dimensions, last = model.output_shape[1:]
    if network and network.target == "values":
        return x, random.random((count, *dimensions, last), dtype="float32")
    return x, random.integers(0, last, (count, *dimensions)).astype("int32")


def resident_bytes(row: Row, model: Any) -> int:
    """What `Dataset.from_tensors`, which the rows were measured with, keeps on the GPU: what is not integers."""
    arrays = keras().tree.flatten(batch_of(row, model))
    return sum(each.nbytes for each in arrays if not np.issubdtype(each.dtype, np.integer))


def _loss(row: Row) -> Any:
    network = NETWORKS.get(row["model"])
    if network and network.target != "classes":
        return "mean_squared_error" if network.target == "values" else None
    return keras().losses.SparseCategoricalCrossentropy(from_logits=True)


def _optimizer(row: Row) -> Any:
    optimizers = keras().optimizers
    settings: dict[str, Any] = {"learning_rate": 1e-3}
    if row.get("accum"):
        settings["gradient_accumulation_steps"] = row["accum"]
    if row.get("optimizer") == "momentum":
        return optimizers.SGD(momentum=0.9, **settings)
    classes = {
        "adam": optimizers.Adam,
        "adamw": optimizers.AdamW,
        "lion": optimizers.Lion,
        "rmsprop": optimizers.RMSprop,
        "sgd": optimizers.SGD,
    }
    return classes[row.get("optimizer") or "adam"](**settings)


def _unet(size: int) -> Any:
    layers = keras().layers

    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.BatchNormalization()(x)
            x = layers.ReLU()(x)
        return x

    inputs = x = keras().Input((size, size, 3))
    skips = []
    for filters in _UNET_WIDTHS:
        x = block(x, filters)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, _UNET_BOTTOM)
    for filters, skip in zip(reversed(_UNET_WIDTHS), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(x)
        x = block(layers.Concatenate()([x, skip]), filters)
    return keras().Model(inputs, layers.Conv2D(2, 1, dtype="float32")(x))


def _seedcnn(size: int) -> Any:
    """A stack of separable convolutions."""
    layers = keras().layers
    inputs = x = keras().Input((size, size, 3))
    for filters, strides in ((32, 1), (64, 2), (128, 2), (256, 2)):
        x = layers.DepthwiseConv2D(3, strides=strides, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Conv2D(filters, 1, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.GlobalAveragePooling2D()(x)
    return keras().Model(inputs, layers.Dense(10, dtype="float32")(x))


def _transformer(length: int, *, width: int = 512, heads: int = 8, blocks: int = 6) -> Any:
    layers = keras().layers
    vocabulary = _VOCABULARY["transformer"]
    inputs = keras().Input((length,), dtype="int32")
    x = layers.Embedding(vocabulary, width)(inputs)
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(heads, width // heads)(y, y)
        x = layers.Add()([x, y])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        y = layers.Dense(width)(y)
        x = layers.Add()([x, y])
    return keras().Model(inputs, layers.Dense(vocabulary, dtype="float32")(x))


def _lstm(length: int) -> Any:
    layers = keras().layers
    inputs = keras().Input((length,), dtype="int32")
    x = layers.Embedding(_VOCABULARY["lstm"], 256)(inputs)
    x = layers.LSTM(512, return_sequences=True)(x)
    x = layers.LSTM(512)(x)
    return keras().Model(inputs, layers.Dense(10, dtype="float32")(x))


def _gru(length: int) -> Any:
    layers = keras().layers
    recurrent = [layers.GRU(256, return_sequences=True), layers.GRU(256)]
    return _stack((length, 64), recurrent, classes=10)


def _mlp(width: int) -> Any:
    return _stack((width,), [keras().layers.Dense(4096, activation="relu") for _ in range(6)], classes=10)


def _conv1d(length: int) -> Any:
    layers = keras().layers
    body: list[Any] = []
    for filters in (64, 128, 256):
        body += [layers.Conv1D(filters, 7, padding="same", activation="relu"), layers.MaxPooling1D(2)]
    return _stack((length, 16), [*body, layers.GlobalAveragePooling1D()], classes=10)


def _conv3d(size: int) -> Any:
    layers = keras().layers
    body: list[Any] = []
    for filters in (16, 32, 64):
        body += [layers.Conv3D(filters, 3, padding="same", activation="relu"), layers.MaxPooling3D(2)]
    return _stack((size, size, size, 1), [*body, layers.GlobalAveragePooling3D()], classes=4)


def _stack(shape: tuple[int, ...], body: list[Any], *, classes: int) -> Any:
    head = keras().layers.Dense(classes, dtype="float32")
    return keras().Sequential([keras().Input(shape), *body, head])


def _application(name: str) -> Callable[[int], Any]:
    def build(size: int) -> Any:
        make = getattr(keras().applications, name)
        settings: dict[str, Any] = {"classes": _APPLICATION_CLASSES}
        if "classifier_activation" in inspect.signature(make).parameters:
            settings["classifier_activation"] = None
        return make(weights=None, input_shape=(size, size, 3), **settings)

    return build


_BUILDERS: dict[str, Callable[[int], Any]] = {
    "conv1d": _conv1d,
    "conv3d": _conv3d,
    "gru": _gru,
    "lstm": _lstm,
    "mlp": _mlp,
    "seedcnn": _seedcnn,
    "transformer": _transformer,
    "unet": _unet,
    **{name: network.build for name, network in NETWORKS.items()},
}
