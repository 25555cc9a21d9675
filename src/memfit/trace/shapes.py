"""Shapes that TensorFlow's inference leaves open: behind lists in nested loops, and where the shape is itself computed.

A step in slices is a loop in whose body the optimiser folds no shapes: dropout's `[Shape(x)[0], 128]` stays as it is
written, and all that follows has no size. Here such shapes are computed, one list or shape after the other.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from memfit.trace.grappler import output_properties
from memfit.trace.step import REDUCTIONS

Shape = tuple[int, ...]
# The position of the input that says which shape an operation makes.
_SHAPE_INPUT = {
    "Fill": 0,
    "StatelessRandomUniformV2": 0,
    "StatelessRandomNormalV2": 0,
    "StatelessTruncatedNormalV2": 0,
    "RandomUniform": 0,
    "RandomStandardNormal": 0,
    "BroadcastTo": 1,
    "Reshape": 1,
}
_PASS_ON = ("Identity", "Enter", "Cast", "Snapshot")
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Mul": np.multiply,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "FloorDiv": np.floor_divide,
}
_INTEGERS = (3, 9)  # DT_INT32, DT_INT64


def complete(
    properties: Mapping[str, Any], graph_def: Any, from_list: Callable[[Any, "Known"], tuple[Shape, ...] | None]
) -> dict[str, Any]:
    """Infer shapes again with those that can be computed, until nothing new is found.

    Args:
        properties: Data type and shape of every output, as inferred.
        graph_def: The graph.
        from_list: The shapes of what a node takes from a list; `None` if it takes nothing, or they are not known.
    """
    known = Known(dict(properties), {node.name: node for node in graph_def.node})
    used = {each for node in graph_def.node for each in node.input}
    copy = None
    while True:
        found = {}
        for node in known.open_nodes():
            shapes = known.computed(node) or from_list(node, known)
            if shapes is not None:
                found[node.name] = shapes
        if not found:
            return known.properties
        copy = copy or type(graph_def).FromString(graph_def.SerializeToString())
        for node in copy.node:
            if node.name in found and f"{node.name}:1" not in used:
                _put_constant(node, known.properties[node.name][0].dtype, found[node.name][0])
        known.learn(found, output_properties(copy, []))


class Known:
    """What is known of the outputs of a graph's operations.

    Args:
        properties: Data type and shape of every output.
        nodes: The operations by name.
    """

    def __init__(self, properties: dict[str, Any], nodes: Mapping[str, Any]) -> None:
        self.properties, self.nodes = properties, nodes
        self._given: dict[str, tuple[Shape, ...]] = {}

    def learn(self, found: Mapping[str, tuple[Shape, ...]], inferred: Mapping[str, Any]) -> None:
        """Take over shapes that were computed, and what was inferred with them."""
        self._given |= found
        for name, outputs in inferred.items():
            if name not in self._given and name in self.properties:
                self.properties[name] = outputs
        for name, shapes in found.items():
            self.properties[name] = [
                _of_shape(each, shape) for each, shape in zip(self.properties[name], shapes, strict=False)
            ] + list(self.properties[name][len(shapes) :])

    def open_nodes(self) -> list[Any]:
        """The operations that have an output without a shape."""
        return [
            node
            for name, node in self.nodes.items()
            if name not in self._given and any(_shape(each) is None for each in self.properties.get(name, ()))
        ]

    def shape(self, endpoint: str) -> Shape | None:
        """The shape of an output."""
        name, _, output = endpoint.partition(":")
        outputs = self.properties.get(name, ())
        return _shape(outputs[int(output or 0)]) if int(output or 0) < len(outputs) else None

    def computed(self, node: Any) -> tuple[Shape, ...] | None:
        """The shapes of an operation's outputs, where they follow from values that are known."""
        if node.op in _SHAPE_INPUT:
            return _single(self._made(node))
        if node.op == "BroadcastGradientArgs":
            axes = self._broadcast(node)
            return None if axes is None else tuple((len(each),) for each in axes)
        if node.op in REDUCTIONS:
            return _single(self._reduced(node))
        return None

    def _made(self, node: Any) -> Shape | None:
        value = self._value(node.input[_SHAPE_INPUT[node.op]])
        if value is None:
            return None
        shape = [int(each) for each in value.reshape(-1)]
        if -1 in shape:
            given = self.shape(node.input[0])
            if given is None:
                return None
            shape[shape.index(-1)] = math.prod(given) // max(1, -math.prod(shape))
        return tuple(shape)

    def _reduced(self, node: Any) -> Shape | None:
        shape, axes = self.shape(node.input[0]), self._value(node.input[1])
        if shape is None or axes is None:
            return None
        reduced = {int(axis) % max(1, len(shape)) for axis in axes.reshape(-1)}
        if node.attr["keep_dims"].b:
            return tuple(1 if number in reduced else size for number, size in enumerate(shape))
        return tuple(size for number, size in enumerate(shape) if number not in reduced)

    def _broadcast(self, node: Any) -> tuple[list[int], list[int]] | None:
        """Over which dimensions the gradient of each of two operands is summed."""
        values = [self._value(each) for each in node.input[:2]]
        if values[0] is None or values[1] is None:
            return None
        shapes = [[int(each) for each in value.reshape(-1)] for value in values if value is not None]
        rank = max(map(len, shapes))
        first, second = ([1] * (rank - len(shape)) + shape for shape in shapes)
        sides = ((first, second), (second, first))
        left, right = ([axis for axis in range(rank) if own[axis] == 1 != other[axis]] for own, other in sides)
        both = [axis for axis in range(rank) if first[axis] == second[axis] == 1]
        return sorted(left + both), sorted(right + both)

    def _value(self, endpoint: str) -> Any | None:
        """The value of a small integer tensor."""
        name, _, output = endpoint.partition(":")
        node, position = self.nodes[name], int(output or 0)
        if node.op == "Const":
            from tensorflow.python.framework import tensor_util

            is_integer = node.attr["dtype"].type in _INTEGERS
            return np.asarray(tensor_util.MakeNdarray(node.attr["value"].tensor)) if is_integer else None
        if node.op in _PASS_ON:
            return self._value(node.input[0])
        if node.op == "IdentityN":
            return self._value(node.input[position])
        if node.op in ("Shape", "ShapeN"):
            shape = self.shape(node.input[position])
            return None if shape is None else np.asarray(shape, np.int64)
        if node.op == "BroadcastGradientArgs":
            axes = self._broadcast(node)
            return None if axes is None else np.asarray(axes[position], np.int64)
        values = [self._value(each) for each in node.input if not each.startswith("^")] if node.op in _COMPUTED else []
        if not values or any(each is None for each in values):
            return None
        return _COMPUTED[node.op](node, values)


def _sliced(node: Any, values: list[Any]) -> Any | None:
    vector, *bounds = values
    if vector.ndim != 1 or any(each.size != 1 for each in bounds):
        return None
    if node.attr["ellipsis_mask"].i or node.attr["new_axis_mask"].i:
        return None
    begin, end, stride = (int(each.reshape(-1)[0]) for each in bounds)
    if node.attr["shrink_axis_mask"].i:
        return vector[begin]
    return vector[None if node.attr["begin_mask"].i else begin : None if node.attr["end_mask"].i else end : stride]


_COMPUTED: dict[str, Callable[[Any, list[Any]], Any]] = {
    "StridedSlice": _sliced,
    "Pack": lambda _, values: np.stack(values),
    "ConcatV2": lambda _, values: np.concatenate(values[:-1]),
    "GatherV2": lambda _, values: np.take(values[0], values[1]),
    "Prod": lambda _, values: np.prod(values[0], dtype=np.int64),
    **{op: lambda node, values: _ARITHMETIC[node.op](*values) for op in _ARITHMETIC},
}


def _single(shape: Shape | None) -> tuple[Shape, ...] | None:
    return None if shape is None else (shape,)


def _shape(properties: Any) -> Shape | None:
    if properties.shape.unknown_rank or any(dimension.size < 0 for dimension in properties.shape.dim):
        return None
    return tuple(int(dimension.size) for dimension in properties.shape.dim)


def _of_shape(properties: Any, shape: Iterable[int]) -> Any:
    changed = type(properties)()
    changed.dtype = properties.dtype
    changed.shape.SetInParent()
    for size in shape:
        changed.shape.dim.add().size = size
    return changed


def _put_constant(node: Any, dtype: int, shape: Iterable[int]) -> None:
    """Replace an operation by one that has this shape."""
    node.op = "ImmutableConst"
    node.ClearField("input")
    node.attr.clear()
    node.attr["dtype"].type = dtype
    node.attr["memory_region_name"].s = b""
    node.attr["shape"].shape.SetInParent()
    for size in shape:
        node.attr["shape"].shape.dim.add().size = size
