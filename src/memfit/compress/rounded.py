"""A layer whose kernel and results are rounded to eight bits. Importing this imports Keras."""

from typing import Any

from memfit.framework import keras as import_keras
from memfit.framework import tensorflow

keras = import_keras()

# As slowly as TensorFlow's own quantization-aware training let its ranges move.
_MOMENTUM = 0.99
_SMALLEST = 1e-6


@keras.saving.register_keras_serializable(package="memfit")
class Rounded(keras.layers.Wrapper):  # type: ignore[misc,name-defined]
    """A convolution or dense layer as int8 arithmetic would compute it; gradients pass the rounding unchanged.

    Args:
        layer: The layer.
    """

    def build(self, input_shape: Any) -> None:
        """Build the layer and the range of its results."""
        super().build(input_shape)
        for name in ("lowest", "highest"):
            settings = {"trainable": False, "dtype": "float32", "autocast": False}
            setattr(self, name, self.add_weight(name=name, shape=(), initializer="zeros", **settings))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Run the layer with its kernel rounded, and round what comes out."""
        with keras.StatelessScope(self._with_rounded_kernel()):
            outputs = self.layer(inputs)
        found = keras.ops.cast(outputs, "float32")
        if training:
            self._widen(keras.ops.min(found), keras.ops.max(found))
        tf = tensorflow()
        low, high = keras.ops.minimum(self.lowest, -_SMALLEST), keras.ops.maximum(self.highest, _SMALLEST)
        rounded = tf.quantization.fake_quant_with_min_max_vars(found, low, high)
        # Before the first step no range is known.
        rounded = keras.ops.where(self.highest > self.lowest, rounded, found)
        return keras.ops.cast(rounded, outputs.dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the layer."""
        return self.layer.compute_output_shape(input_shape)

    def _with_rounded_kernel(self) -> list[tuple[Any, Any]]:
        """Each variable of the layer with its value; the kernel's on 255 steps per output channel."""
        tf, ops = tensorflow(), keras.ops
        state = []
        for variable in self.layer.variables:
            # Mixed precision shows variables in half; rounding is done in float32.
            value = tf.cast(variable.value, "float32")
            if variable.name == "kernel":
                axes = list(range(len(variable.shape) - 1))
                limit = ops.maximum(ops.max(ops.abs(value), axis=axes), _SMALLEST)
                value = tf.quantization.fake_quant_with_min_max_vars_per_channel(
                    value, -limit, limit, narrow_range=True
                )
            state.append((variable, value))
        return state

    def _widen(self, low: Any, high: Any) -> None:
        """Move the range towards what was seen; the first time to it."""
        first = self.highest <= self.lowest
        for variable, seen in ((self.lowest, low), (self.highest, high)):
            moved = _MOMENTUM * variable + (1 - _MOMENTUM) * seen
            variable.assign(keras.ops.where(first, seen, moved))
