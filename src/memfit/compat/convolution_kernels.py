"""Which of TensorFlow's CPU kernels computes a convolution's gradients."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from importlib import import_module
from inspect import signature
from typing import Any, Literal

from memfit.compat.patching import patched
from memfit.framework import tensorflow
from memfit.hardware.patches import patch_buffer

LABEL = "eigen_tensor"
"""TensorFlow's name for the kernels without a buffer of patches; an operation asks for them in `_kernel`."""

_Gradient = Literal["input", "filter"]
# The functions that every gradient and every transposed convolution is made with, and the operations they make. Those
# of volumes do without a buffer anyway.
_GRADIENTS: dict[str, tuple[str, _Gradient]] = {
    "conv2d_backprop_input": ("Conv2DBackpropInput", "input"),
    "conv2d_backprop_filter": ("Conv2DBackpropFilter", "filter"),
}


@contextmanager
def smaller_than(limit: int, unless: Callable[[], bool]) -> Iterator[None]:
    """Trace convolutions inside so that a CPU's kernels take no buffer of patches above a limit.

    The same numbers are added up in another order.

    Args:
        limit: Bytes.
        unless: Whether XLA compiles what is traced: it has no kernels of that name, and takes no buffer.
    """
    module = import_module("tensorflow.python.ops.gen_nn_ops")
    with ExitStack() as stack:
        for name, (operation, gradient) in _GRADIENTS.items():
            stack.enter_context(patched(module, name, partial(_labelled, operation, gradient, limit, unless)))
        yield


def _labelled(
    operation: str, gradient: _Gradient, limit: int, unless: Callable[[], bool], original: Callable[..., Any]
) -> Callable[..., Any]:
    parameters = signature(original)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        tf = tensorflow()
        leave = unless() or not tf.inside_function()
        size = 0 if leave else _buffer(gradient, parameters.bind(*args, **kwargs).arguments)
        if size is not None and size <= limit:
            return original(*args, **kwargs)
        with tf.compat.v1.get_default_graph()._kernel_label_map({operation: LABEL}):
            return original(*args, **kwargs)

    return call


def _buffer(gradient: _Gradient, given: Mapping[str, Any]) -> int | None:
    """Bytes of the buffer of patches; `None` where shapes are not known."""
    tf = tensorflow()
    result = given["out_backprop"]
    filters = tf.get_static_value(given["filter_sizes"]) if gradient == "filter" else given["filter"].shape.as_list()
    if filters is None or result.shape.rank is None or None in [*filters, *result.shape[1:-1]]:
        return None
    *kernel, inputs, outputs = (int(each) for each in filters)
    positions = math.prod(result.shape[1:-1])
    return patch_buffer(gradient, kernel, (inputs, outputs), positions, result.shape[0], result.dtype.size)
