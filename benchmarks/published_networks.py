"""More networks that people publish: what predictions are tried on that were made before these were measured.

Each function takes the size (of an image's side, or a sequence's length) and returns a model that is not compiled.
"""

from typing import Any

from networks import Network

from memfit.framework import keras


def _unet_xception(size: int) -> Any:
    """Image segmentation with separable convolutions and residual connections."""
    layers = keras().layers
    inputs = keras().Input((size, size, 3))
    x = layers.Conv2D(32, 3, strides=2, padding="same")(inputs)
    x = before = layers.Activation("relu")(layers.BatchNormalization()(x))
    for filters in (64, 128, 256):
        for _ in range(2):
            x = layers.SeparableConv2D(filters, 3, padding="same")(layers.Activation("relu")(x))
            x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = before = x + layers.Conv2D(filters, 1, strides=2, padding="same")(before)
    for filters in (256, 128, 64, 32):
        for _ in range(2):
            x = layers.Conv2DTranspose(filters, 3, padding="same")(layers.Activation("relu")(x))
            x = layers.BatchNormalization()(x)
        x = layers.UpSampling2D(2)(x)
        x = before = x + layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(before))
    return keras().Model(inputs, layers.Conv2D(3, 3, padding="same", dtype="float32")(x))


def _darknet(size: int) -> Any:
    """The backbone of YOLOv3 under one grid of boxes."""
    layers = keras().layers

    def convolution(x: Any, filters: int, kernel: int, strides: int = 1) -> Any:
        x = layers.Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False)(x)
        return layers.LeakyReLU(0.1)(layers.BatchNormalization()(x))

    inputs = keras().Input((size, size, 3))
    x = convolution(inputs, 32, 3)
    for filters, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        x = convolution(x, filters, 3, strides=2)
        for _ in range(blocks):
            x = x + convolution(convolution(x, filters // 2, 1), filters, 3)
    return keras().Model(inputs, layers.Conv2D(75, 1, dtype="float32")(x))


def _image_translation(size: int) -> Any:
    """CycleGAN's generator: instance normalization, nine residual blocks, transposed convolutions."""
    layers = keras().layers

    def normalized(x: Any) -> Any:
        return layers.Activation("relu")(layers.GroupNormalization(groups=-1)(x))

    inputs = keras().Input((size, size, 3))
    x = normalized(layers.Conv2D(64, 7, padding="same", use_bias=False)(inputs))
    for filters in (128, 256):
        x = normalized(layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x))
    for _ in range(9):
        y = normalized(layers.Conv2D(256, 3, padding="same", use_bias=False)(x))
        x = x + layers.GroupNormalization(groups=-1)(layers.Conv2D(256, 3, padding="same", use_bias=False)(y))
    for filters in (128, 64):
        x = normalized(layers.Conv2DTranspose(filters, 3, strides=2, padding="same", use_bias=False)(x))
    return keras().Model(inputs, layers.Conv2D(3, 7, padding="same", activation="tanh", dtype="float32")(x))


def _low_light(size: int) -> Any:
    """Zero-DCE: seven narrow convolutions at full size with skip connections."""
    layers = keras().layers

    def convolution(x: Any) -> Any:
        return layers.Conv2D(32, 3, padding="same", activation="relu")(x)

    inputs = keras().Input((size, size, 3))
    first = convolution(inputs)
    second = convolution(first)
    third = convolution(second)
    x = convolution(third)
    for skip in (third, second):
        x = convolution(layers.Concatenate()([skip, x]))
    x = layers.Concatenate()([first, x])
    return keras().Model(inputs, layers.Conv2D(3, 3, padding="same", activation="tanh", dtype="float32")(x))


def _mlp_mixer(size: int, *, patch: int = 16, width: int = 512, blocks: int = 8) -> Any:
    layers = keras().layers
    inputs = keras().Input((size, size, 3))
    count = (size // patch) ** 2
    x = layers.Reshape((count, width))(layers.Conv2D(width, patch, strides=patch)(inputs))
    for _ in range(blocks):
        y = layers.Permute((2, 1))(layers.LayerNormalization(epsilon=1e-6)(x))
        y = layers.Dense(count)(layers.Dense(256, activation="gelu")(y))
        x = x + layers.Permute((2, 1))(y)
        y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
        x = x + layers.Dropout(0.2)(layers.Dense(width)(y))
    return keras().Model(inputs, layers.Dense(1000, dtype="float32")(layers.GlobalAveragePooling1D()(x)))


def _pointnet(points: int) -> Any:
    """A cloud of points, each by itself, and their maximum."""
    layers = keras().layers

    def convolution(x: Any, filters: int) -> Any:
        return layers.Activation("relu")(layers.BatchNormalization(momentum=0.0)(layers.Conv1D(filters, 1)(x)))

    def transformed(inputs: Any, features: int) -> Any:
        x = inputs
        for filters in (32, 64, 512):
            x = convolution(x, filters)
        x = layers.GlobalMaxPooling1D()(x)
        for units in (256, 128):
            x = layers.Activation("relu")(layers.BatchNormalization(momentum=0.0)(layers.Dense(units)(x)))
        x = layers.Reshape((features, features))(layers.Dense(features * features)(x))
        return layers.Dot(axes=(2, 1))([inputs, x])

    inputs = keras().Input((points, 3))
    x = transformed(inputs, 3)
    x = convolution(convolution(x, 32), 32)
    x = transformed(x, 32)
    for filters in (32, 64, 512):
        x = convolution(x, filters)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dropout(0.3)(layers.Dense(256, activation="relu")(x))
    return keras().Model(inputs, layers.Dense(10, dtype="float32")(x))


def _speaker(length: int) -> Any:
    """Speaker recognition: residual 1-D convolutions over a spectrum."""
    layers = keras().layers
    x = inputs = keras().Input((length, 1))
    for filters, convolutions in ((16, 2), (32, 2), (64, 3), (128, 3), (128, 3)):
        shortcut = layers.Conv1D(filters, 1, padding="same")(x)
        for _ in range(convolutions - 1):
            x = layers.Activation("relu")(layers.Conv1D(filters, 3, padding="same")(x))
        x = layers.Activation("relu")(layers.Conv1D(filters, 3, padding="same")(x) + shortcut)
        x = layers.MaxPooling1D(2, strides=2)(x)
    x = layers.Flatten()(layers.AveragePooling1D(3, strides=3)(x))
    x = layers.Dense(128, activation="relu")(layers.Dense(256, activation="relu")(x))
    return keras().Model(inputs, layers.Dense(5, dtype="float32")(x))


PUBLISHED = {
    "unet_xception": Network(_unet_xception),
    "darknet": Network(_darknet, target="values"),
    "image_translation": Network(_image_translation, target="values"),
    "low_light": Network(_low_light, target="values"),
    "mlp_mixer": Network(_mlp_mixer),
    "pointnet": Network(_pointnet),
    "speaker": Network(_speaker),
}
