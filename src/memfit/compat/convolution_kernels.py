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
        given = parameters.bind(*args, **kwargs).arguments
        foreign = unless() or not tf.inside_function() or _in_another_function()
        if foreign or not _has_both_kernels(gradient, given):
            return original(*args, **kwargs)
        size = _buffer(gradient, given)
        if size is not None and size <= limit:
            return original(*args, **kwargs)
        with tf.compat.v1.get_default_graph()._kernel_label_map({operation: LABEL}):
            return original(*args, **kwargs)

    return call


def _in_another_function() -> bool:
    """Whether what is traced belongs to a function that the step calls and XLA compiles, or may compile.

    The gradient of a function is a function too, and does not say how it is compiled.
    """
    graph = tensorflow().compat.v1.get_default_graph()
    if import_module("tensorflow.python.ops.control_flow_util").GraphOrParentsInXlaContext(graph):
        return True
    while graph is not None:
        if getattr(graph, "name", "").startswith("__backward_"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _has_both_kernels(gradient: _Gradient, given: Mapping[str, Any]) -> bool:
    """Whether both kernels compute the same.

    Where channels come in groups the one without a buffer writes past its tensors: it does not look for them
    (`Conv2DCustomBackpropInputOp`). It adds up 16-bit numbers in 16 bits, and has no dilation.
    """
    tf = tensorflow()
    inputs = _sizes(given["input_sizes"]) if gradient == "input" else given["input"].shape
    filters = _filters(gradient, given)
    if inputs.rank is None or filters.rank is None or inputs[-1] is None or inputs[-1] != filters[-2]:
        return False
    dilated = any(each != 1 for each in given.get("dilations") or ())
    return not dilated and given["out_backprop"].dtype in (tf.float32, tf.float64)


def _buffer(gradient: _Gradient, given: Mapping[str, Any]) -> int | None:
    """Bytes of the buffer of patches; `None` where shapes are not known."""
    result, filters = given["out_backprop"], _filters(gradient, given)
    if not filters.is_fully_defined() or result.shape.rank is None or None in [*result.shape[1:-1]]:
        return None
    *kernel, inputs, outputs = filters.as_list()
    positions = math.prod(result.shape[1:-1])
    return patch_buffer(gradient, kernel, (inputs, outputs), positions, result.shape[0], result.dtype.size)


def _filters(gradient: _Gradient, given: Mapping[str, Any]) -> Any:
    """The shape of the filter, as far as it is known."""
    return _sizes(given["filter_sizes"]) if gradient == "filter" else given["filter"].shape


def _sizes(tensor: Any) -> Any:
    """The shape that a tensor says, as far as it is known."""
    if isinstance(tensor, tensorflow().Tensor) and tensor.op.type == "ShapeN":
        return tensor.op.inputs[tensor.value_index].shape
    return import_module("tensorflow.python.framework.tensor_util").constant_value_as_shape(
        tensorflow().convert_to_tensor(tensor)
    )
