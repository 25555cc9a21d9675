"""The order in which the gradients of a traced step are computed, so that they hold least. Results stay the same.

TensorFlow's executor computes what is ready. XLA orders the operations that it compiles by itself.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from memfit.compat.graph_order import operations_since, place_after
from memfit.framework import tensorflow

# Products whose gradients are products again: one for the weights, one for the inputs.
_PRODUCTS = frozenset(
    (
        *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
        *("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
        *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
        *("MatMul", "BatchMatMulV2", "Einsum"),
    )
)
# What stands between a product and the gradient of a weight.
_BETWEEN = frozenset(("Identity", "Reshape", "Cast", "Transpose", "Squeeze", "ExpandDims", "Sum", "AddN", "AddV2"))
UPDATES = frozenset(("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"))


def weights_before_inputs(gradients: Sequence[Any], since: int) -> None:
    """Have each layer's gradient for its weights computed before the one for its inputs.

    Both need the gradient of the layer's outputs. The first also needs what the layer was given, and lets go of it
    before the second takes as much again: in a GAN that is 24 of 103 MiB.

    Args:
        gradients: Gradients of weights, `None` where there is none.
        since: How many operations the graph had before gradients were taken.
    """
    new = {id(each): each for each in operations_since(since)}
    tensors = [each for each in gradients if each is not None and not isinstance(each, tensorflow().IndexedSlices)]
    for product in _products([each.op for each in tensors], new):
        before = _ancestors(product, new)
        for upstream in product.inputs:
            for other in upstream.consumers():
                if other.type in _PRODUCTS and id(other) in new and other is not product and id(other) not in before:
                    place_after(other, product)


def after_updates(tensors: Sequence[Any]) -> list[Any]:
    """Tensors that are there when every update so far is done: what they are used for does not run beside it.

    A step that trains two models, such as a GAN's, would otherwise hold what both need.
    """
    tf = tensorflow()
    updates = [each for each in operations_since(0) if each.type in UPDATES]
    if not updates:
        return list(tensors)
    with tf.control_dependencies(updates):
        return [tf.identity(each) for each in tensors]


def _products(operations: list[Any], new: dict[int, Any]) -> Iterable[Any]:
    """The products that gradients of weights come from."""
    waiting, seen = list(operations), set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen or id(each) not in new:
            continue
        seen.add(id(each))
        if each.type in _PRODUCTS:
            yield each
        elif each.type in _BETWEEN:
            waiting += [tensor.op for tensor in each.inputs]


def _ancestors(operation: Any, new: dict[int, Any]) -> set[int]:
    """What has to run before an operation."""
    waiting, seen = [operation], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in new and id(each) not in seen:
            seen.add(id(each))
            waiting += [tensor.op for tensor in each.inputs] + list(each.control_inputs)
    return seen
