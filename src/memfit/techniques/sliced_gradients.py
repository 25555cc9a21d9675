"""Gradients of slices, combined to the gradients of the whole batch.

Dense gradients add up. An embedding's gradient has one row for each entry that was looked up: entries of samples are
concatenated, entries that all samples share (positions) have the same rows in each slice and add up. One gradient may
have pieces of both kinds, where an embedding is used several times. It stays a gradient of rows: Keras's optimizers
treat those differently, and clip them by the norm of their rows.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from memfit.framework import tensorflow
from memfit.techniques.rehearsal import Rehearsal

_SHAPES = frozenset(("Shape", "ShapeN", "Size", "Rank"))


class SlicedGradients:
    """The gradients of one traced slice, in the order of the variables.

    Args:
        variables: What they are gradients of.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self.variables = variables
        self._layouts: list[list[str]] = []

    def of_slice(self, gradients: Sequence[Any], batch: Any, rehearsal: Rehearsal) -> dict[str, list[Any]]:
        """What the slice has of each gradient, as `slices.Work` returns it."""
        tf = tensorflow()
        self._layouts = []
        found: dict[str, list[Any]] = {"sum": [], "latest": [], "pieces": []}
        data = {each.name for each in tf.nest.flatten(batch) if each is not None}
        for gradient, variable in zip(gradients, self.variables, strict=True):
            if gradient is None:
                self._layouts.append([])
            elif isinstance(gradient, tf.IndexedSlices):
                self._layouts.append(_sparse(gradient, variable, data, rehearsal, found))
            else:
                gradient.set_shape(variable.shape)  # not all gradients know theirs
                found["sum"].append(gradient)
                self._layouts.append(["dense"])
        return found

    def of_batch(self, found: dict[str, list[Any]]) -> list[Any]:
        """The gradients of the whole batch, from what came together of `of_slice`."""
        tf = tensorflow()
        summed, latest, pieces = iter(found["sum"]), iter(found["latest"]), iter(found["pieces"])
        gradients: list[Any] = []
        for layout, variable in zip(self._layouts, self.variables, strict=True):
            if not layout:
                gradients.append(None)
            elif layout == ["dense"]:
                gradients.append(next(summed))
            else:
                parts = []
                for kind in layout:
                    if kind == "shared":
                        parts.append((next(summed), next(latest)))
                    elif kind == "stacked":
                        parts.append((tf.reduce_sum(next(pieces), 0), next(pieces)[0]))
                    else:
                        parts.append((next(pieces), next(pieces)))
                values, indices = (
                    tf.concat(each, 0) if len(parts) > 1 else each[0] for each in zip(*parts, strict=True)
                )
                gradients.append(_indexed(values, indices, variable))
        return gradients


def added(first: Any, second: Any, variable: Any) -> Any:
    """The sum of two gradients of a variable, dense as soon as one of them is."""
    tf = tensorflow()
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, tf.IndexedSlices) and isinstance(second, tf.IndexedSlices):
        indices = tf.concat([tf.cast(each.indices, tf.int64) for each in (first, second)], 0)
        return _indexed(tf.concat([first.values, second.values], 0), indices, variable)
    return tf.convert_to_tensor(first) + tf.convert_to_tensor(second)


def _indexed(values: Any, indices: Any, variable: Any) -> Any:
    tf = tensorflow()
    # A tensor, as TensorFlow's own gradients have: a plain shape cannot go through a traced function.
    return tf.IndexedSlices(values, indices, tf.constant([*variable.shape], tf.int32))


def _sparse(
    gradient: Any, variable: Any, data: set[str], rehearsal: Rehearsal, found: dict[str, list[Any]]
) -> list[str]:
    """Put the pieces of a gradient of rows where they belong, and say where."""
    tf = tensorflow()
    layout = []
    for values, indices in zip(*_pieces(gradient.values, gradient.indices), strict=True):
        rows = values.shape[0] if values.shape[0] is not None else indices.shape[0]
        if rehearsal.follows_samples(rows, data_dependent=_reads(indices, data)):
            found["pieces"] += [tf.ensure_shape(values, [None, *variable.shape[1:]]), indices]
            layout.append("samples")
        elif rows is not None:
            found["sum"].append(tf.ensure_shape(values, [rows, *variable.shape[1:]]))
            found["latest"].append(tf.ensure_shape(indices, [rows]))
            layout.append("shared")
        else:
            found["pieces"] += [tf.ensure_shape(values, [None, *variable.shape[1:]])[None], indices[None]]
            layout.append("stacked")
    return layout


def _pieces(values: Any, indices: Any) -> tuple[list[Any], list[Any]]:
    """The parts that TensorFlow concatenated to a gradient, one for each use of the variable."""
    parts = _concatenated(values), _concatenated(indices)
    return parts if len(parts[0]) == len(parts[1]) else ([values], [indices])


def _concatenated(tensor: Any) -> list[Any]:
    if (operation := getattr(tensor, "op", None)) is None:
        return [tensor]
    if operation.type == "Identity":
        return _concatenated(operation.inputs[0])
    if operation.type == "ConcatV2" and tensorflow().get_static_value(operation.inputs[-1]) == 0:
        return [*chain.from_iterable(_concatenated(each) for each in operation.inputs[:-1])]
    return [tensor]


def _reads(tensor: Any, data: set[str]) -> bool:
    """Whether a tensor is computed from the data, and not only from its shape."""
    waiting, seen = [tensor], set[str]()
    while waiting:
        each = waiting.pop()
        if each.name in data:
            return True
        if each.name not in seen and each.op.type not in _SHAPES:
            seen.add(each.name)
            waiting += each.op.inputs
    return False
