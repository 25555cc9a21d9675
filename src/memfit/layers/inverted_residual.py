"""An inverted residual with a linear bottleneck, as in MobileNetV2."""

from typing import Any

from memfit.layers.block import Block, keras, refuse_counts


@keras.saving.register_keras_serializable(package="memfit")
class InvertedResidual(Block):
    """A pointwise expansion, a depthwise convolution, a pointwise projection, and a shortcut where shapes allow it.

    Args:
        filters: Output channels.
        kernel_size: Size of the depthwise kernel.
        strides: Of the depthwise convolution; with more than 1 there is no shortcut.
        expansion: How many times as many channels there are inside; with 1 nothing is expanded.
        activation: After the expansion and the depthwise convolution; the projection is linear.

    Example:
        ```python
        import keras
        import memfit

        inputs = keras.Input((32, 32, 16))
        features = memfit.layers.InvertedResidual(16, expansion=4)(inputs)
        ```
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int = 3,
        *,
        strides: int = 1,
        expansion: int = 6,
        activation: Any = "relu6",
        **settings: Any,
    ) -> None:
        refuse_counts(
            "InvertedResidual", filters=filters, kernel_size=kernel_size, strides=strides, expansion=expansion
        )
        super().__init__(**settings)
        self.filters, self.kernel_size, self.strides, self.expansion = filters, kernel_size, strides, expansion
        self.activation = keras.activations.get(activation)
        self.has_shortcut = False

    def build(self, input_shape: Any) -> None:
        """Make and build the layers: how far to expand follows from the input."""
        channels = input_shape[-1]
        if self.expansion > 1:
            self.add_convolution(channels * self.expansion, 1, activation=self.activation)
        self.add_convolution(None, self.kernel_size, strides=self.strides, activation=self.activation)
        self.add_convolution(self.filters, 1)
        self.has_shortcut = self.strides == 1 and channels == self.filters
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Run the layers, and add what came in."""
        features = super().call(inputs, training=training)
        return inputs + features if self.has_shortcut else features

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Height and width by the strides, and the channels."""
        batch, *size, _ = input_shape
        return batch, *(None if each is None else -(-each // self.strides) for each in size), self.filters

    def get_config(self) -> dict[str, Any]:
        """The arguments it was made with."""
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "expansion": self.expansion,
            "activation": keras.activations.serialize(self.activation),
        }
