"""Pictures of shapes, made on the spot, and a small network that learns to tell them apart."""

from typing import Any

import numpy as np

from memfit.framework import keras

SIZE = 32
KINDS = ("circle", "square", "triangle", "cross")
_NOISE = 0.25


def pictures(count: int, seed: int) -> tuple[Any, Any]:
    """Noisy grey pictures of one shape each, and which shape it is."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(KINDS), count)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images = np.empty((count, SIZE, SIZE, 1), "float32")
    for image, label in zip(images, labels, strict=True):
        radius = random.uniform(5, 11)
        up, left = rows - random.uniform(radius, SIZE - radius), columns - random.uniform(radius, SIZE - radius)
        image[..., 0] = _inside(KINDS[label], up / radius, left / radius) * random.uniform(0.5, 1)
        image += random.normal(scale=_NOISE, size=image.shape)
    return images, labels.astype("int32")


def _inside(kind: str, up: Any, left: Any) -> Any:
    """Which points belong to a shape whose box is -1 to 1."""
    if kind == "circle":
        return up**2 + left**2 < 1
    if kind == "square":
        return np.maximum(abs(up), abs(left)) < 0.85
    if kind == "triangle":
        return (up < 0.8) & (abs(left) < (up + 1) / 2)
    return (np.maximum(abs(up), abs(left)) < 1) & (np.minimum(abs(up), abs(left)) < 0.3)


def network() -> Any:
    """A small convolutional network with batch normalisation, compiled."""
    layers = keras().layers
    body: list[Any] = []
    for filters, pooled in ((32, True), (32, False), (64, True), (64, False)):
        # A few hundred steps are too few for Keras's default momentum of 0.99: the statistics would lag behind.
        norm = layers.BatchNormalization(momentum=0.9)
        body += [layers.Conv2D(filters, 3, padding="same", use_bias=False), norm, layers.ReLU()]
        body += [layers.MaxPooling2D()] if pooled else []
    head = [layers.GlobalAveragePooling2D(), layers.Dense(len(KINDS))]
    model = keras().Sequential([keras().Input((SIZE, SIZE, 1)), *body, *head], name="shapes")
    compile_for(model, 1e-3)
    return model


def compile_for(model: Any, learning_rate: float) -> None:
    """Compile a model to learn shapes, without XLA."""
    loss = keras().losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras().optimizers.Adam(learning_rate), loss, metrics=["accuracy"], jit_compile=False)
