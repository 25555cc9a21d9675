"""A depthwise separable convolution with normalisation, as in MobileNet."""

from typing import Any

from memfit.layers.block import Block, keras, refuse_counts


@keras.saving.register_keras_serializable(package="memfit")
class SeparableBlock(Block):
    """Depthwise convolution, normalisation, activation, pointwise convolution, normalisation, activation.

    It has about a ninth of the parameters and of the work of a 3x3 convolution, and keeps more activations: let
    `memfit.compare` say what it does to the peak.

    Args:
        filters: Output channels.
        kernel_size: Size of the depthwise kernel.
        strides: Of the depthwise convolution.
        activation: After both normalisations.

    Example:
        ```python
        import keras
        import memfit

        inputs = keras.Input((32, 32, 3))
        features = memfit.layers.SeparableBlock(32, strides=2)(inputs)
        ```
    """

    def __init__(
        self, filters: int, kernel_size: int = 3, *, strides: int = 1, activation: Any = "relu", **settings: Any
    ) -> None:
        refuse_counts("SeparableBlock", filters=filters, kernel_size=kernel_size, strides=strides)
        super().__init__(**settings)
        self.filters, self.kernel_size, self.strides = filters, kernel_size, strides
        self.activation = keras.activations.get(activation)
        self.add_convolution(None, kernel_size, strides=strides, activation=self.activation)
        self.add_convolution(filters, 1, activation=self.activation)

    def get_config(self) -> dict[str, Any]:
        """The arguments it was made with."""
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "activation": keras.activations.serialize(self.activation),
        }
