"""What the blocks have in common: layers in a row that are one layer to the model."""

from typing import Any

from memfit.errors import InputError
from memfit.framework import keras as import_keras

keras = import_keras()


class Block(keras.layers.Layer):  # type: ignore[misc,name-defined]
    """Layers called one after another; each has the block's data type policy."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.steps: list[Any] = []

    def add(self, layer: Any, **settings: Any) -> None:
        """Append a layer of the block's own policy."""
        self.steps.append(layer(dtype=self.dtype_policy, **settings))

    def add_convolution(
        self, filters: int | None, kernel_size: int, *, strides: int = 1, activation: Any = None
    ) -> None:
        """Append a convolution (depthwise without `filters`), its normalisation and its activation."""
        layers = keras.layers
        shared = {"strides": strides, "padding": "same", "use_bias": False}
        if filters is None:
            self.add(layers.DepthwiseConv2D, kernel_size=kernel_size, **shared)
        else:
            self.add(layers.Conv2D, filters=filters, kernel_size=kernel_size, **shared)
        self.add(layers.BatchNormalization)
        if activation is not None:
            self.add(layers.Activation, activation=activation)

    def build(self, input_shape: Any) -> None:
        """Build the layers in their order."""
        for layer in self.steps:
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Run the layers in their order."""
        features = inputs
        for layer in self.steps:
            takes_training = isinstance(layer, keras.layers.BatchNormalization)
            features = layer(features, training=training) if takes_training else layer(features)
        return features

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape after the last layer."""
        for layer in self.steps:
            input_shape = layer.compute_output_shape(input_shape)
        return input_shape


def refuse_counts(block: str, **counts: Any) -> None:
    """Say which setting is no whole number above zero."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{block}({name}={value!r}): expected a whole number of at least 1.")
