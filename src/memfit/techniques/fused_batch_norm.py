"""Batch normalisation in TensorFlow's fused kernel, which keeps its input and two vectors for the backward pass.

Keras 3 composes it of elementary operations, which keep several tensors of that size where XLA does not fuse them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.techniques.batch_statistics import note_moments
from memfit.techniques.instance import replaced, retraced
from memfit.techniques.technique import Verdict

_SMALLEST_EPSILON = 1.001e-5  # CUDNN_BN_MIN_EPSILON


def check(model: Any, value: Any) -> Verdict:
    """Refuse models that have nothing to fuse."""
    if not isinstance(value, bool):
        raise InputError(f"fused_batch_norm must be True or False; got {value!r}.")
    layers = _fusable(model)
    if value and not layers:
        raise InputError(
            f"{model.name!r} has no batch normalisation that can be fused: it takes images with channels last, epsilon "
            f"of at least {_SMALLEST_EPSILON:g}, no renorm and no synchronisation. Plan without fused_batch_norm."
        )
    return Verdict("exact", f"{len(layers)} batch normalisations in TensorFlow's fused kernel, same statistics")


@contextmanager
def applied(model: Any, value: bool) -> Iterator[None]:
    """Let the layers that can call the fused kernel when they train."""
    with retraced(model), ExitStack() as stack:
        for layer in _fusable(model) if value else ():
            stack.enter_context(_fused(layer))
        yield


def _fusable(model: Any) -> list[Any]:
    kind = keras().layers.BatchNormalization
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, kind)
        and type(layer).call is kind.call
        and layer.axis in (-1, 3)
        and len(layer._reduction_axes) == 3
        and layer.epsilon >= _SMALLEST_EPSILON
        and not layer.renorm
        and not layer.synchronized
        and layer.variable_dtype == "float32"
    ]


def _fused(layer: Any) -> AbstractContextManager[None]:
    original = layer.call

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not training or not layer.trainable or mask is not None:
            return original(inputs, training=training, mask=mask)
        return _normalise(layer, inputs)

    return replaced(layer, "call", call)


def _normalise(layer: Any, inputs: Any) -> Any:
    tf = tensorflow()
    channels = inputs.shape[-1]
    scale = tf.cast(layer.gamma, tf.float32) if layer.scale else tf.ones([channels])
    offset = tf.cast(layer.beta, tf.float32) if layer.center else tf.zeros([channels])
    found = tf.raw_ops.FusedBatchNormV3(
        x=inputs, scale=scale, offset=offset, mean=tf.zeros([0]), variance=tf.zeros([0]), epsilon=layer.epsilon
    )
    # The kernel returns the unbiased variance for moving averages (Bessel's correction); Keras keeps the biased one.
    count = tf.cast(tf.size(inputs) // channels, tf.float32)
    mean, variance = found.batch_mean, found.batch_variance * (count - 1) / count
    note_moments(layer, mean, variance)
    for moving, value in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        moving.assign(tf.cast(moving.value, tf.float32) * layer.momentum + value * (1.0 - layer.momentum))
    return tf.cast(found.y, layer.compute_dtype)
