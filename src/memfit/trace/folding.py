"""The batch size to trace with where the optimiser would make large constants.

A step is traced with a batch size that divides no other dimension. What depends on sizes alone, such as the mask of
causal attention, the optimiser computes once for that batch: at 251 samples gigabytes, which it copies many times over.
"""

import math
from typing import Any

from memfit.units import MIB

_LARGE = 32 * MIB
_PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109)
_SIZES = frozenset(("Const", "Shape", "ShapeN", "Size", "Rank"))


def smaller_size(graph: Any, size: int) -> int:
    """A smaller batch size where there are such constants, else the same.

    Args:
        graph: A step, traced with `size`.
        size: A batch size that divides no other dimension.

    Returns:
        A size that divides no other dimension of the graph either.
    """
    if _largest_constant(graph) < _LARGE:
        return size
    fixed = {
        dimension
        for operation in graph.get_operations()
        for output in operation.outputs
        for dimension in (output.shape.dims and output.shape.as_list()) or ()
        if dimension and dimension > 1 and dimension % size
    }
    return next((prime for prime in _PRIMES if all(dimension % prime for dimension in fixed)), size)


def _largest_constant(graph: Any) -> int:
    """The bytes of the largest value that depends on no input and no variable."""
    constants: set[str] = set()
    returned = {id(output) for output in getattr(graph, "outputs", ())}
    largest = 0
    for operation in graph.get_operations():
        is_constant = operation.type in _SIZES or (
            bool(operation.inputs)
            and not operation.op_def.is_stateful
            and all(tensor.op.name in constants for tensor in operation.inputs)
        )
        if is_constant:
            constants.add(operation.name)
            for output in operation.outputs:
                if not output.shape.is_fully_defined():
                    continue
                size = math.prod(output.shape.as_list()) * output.dtype.size
                # What nothing reads, such as the zero gradients of recomputed values, is removed before it is computed.
                if size > largest and (output.consumers() or id(output) in returned):
                    largest = size
    return largest
