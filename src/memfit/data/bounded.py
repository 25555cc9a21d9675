"""`bounded`: a RAM budget for a pipeline the user already has."""

import math
from typing import Any

from memfit.data.facts import Bounds, Stage
from memfit.data.feed import Feed, attach, lineage
from memfit.data.pipeline import with_options
from memfit.errors import BudgetTooSmallError, InputError
from memfit.framework import tensorflow
from memfit.units import Size, format_size, parse_size

_PREFETCH = 2
# How many elements are looked at where their shapes do not say how large they are.
_LOOKED_AT = 2


def bounded(dataset: Any, *, ram_budget: Size) -> Any:
    """Put a RAM budget on a tf.data pipeline: its autotuner keeps to it, and what it holds is counted.

    What the pipeline computes stays as it is. Batches are prefetched as far as the budget allows.

    Args:
        dataset: A batched `tf.data.Dataset`.
        ram_budget: The host memory that its caches, buffers and batches may take together.

    Returns:
        A `tf.data.Dataset` with the same elements; `memfit.data.explain` says what holds how much.

    Raises:
        BudgetTooSmallError: If what it holds is more than that.
    """
    tf = tensorflow()
    if not isinstance(dataset, tf.data.Dataset):
        raise InputError(f"dataset is a {type(dataset).__name__}; expected a tf.data.Dataset.")
    budget = parse_size(ram_budget, what="ram_budget")
    size = _element_bytes(dataset)
    stages = tuple(stage for each in lineage(dataset) if (stage := _stage(each)) is not None)
    held = sum(each.held_bytes or 0 for each in stages)
    left = budget - held
    if left < 2 * size:
        _refuse(budget, stages, size)
    # One is made and one is used; the rest may wait.
    prefetch = max(1, min(_PREFETCH, left // max(size, 1) - 2))
    with tf.device("CPU:0"):
        made = with_options(dataset.prefetch(prefetch), max(left - (prefetch + 1) * size, size))
    return attach(made, Feed(Bounds(budget, size, stages, prefetch)))


def _refuse(budget: int, stages: tuple[Stage, ...], size: int) -> None:
    parts = [f"{each.what} holds {format_size(each.held_bytes)}" for each in stages if each.held_bytes]
    parts.append(f"two elements take {format_size(2 * size)}")
    raise BudgetTooSmallError(
        f"this pipeline does not fit ram_budget={format_size(budget)}: {', '.join(parts)}. Shuffle paths instead of "
        'pictures, cache in a file with dataset.cache("name"), or raise the budget.'
    )


def _stage(dataset: Any) -> Stage | None:
    """What a part of the pipeline holds; `None` for one that holds nothing."""
    kind = type(dataset).__name__
    inputs = dataset._inputs()
    if kind == "CacheDataset":
        if bytes(dataset._filename.numpy()):
            return None
        count = int(dataset.cardinality())
        each = _element_bytes(inputs[0])
        return Stage("cache()", count * each if count >= 0 else None)
    sizes = {"ShuffleDataset": "_buffer_size", "PrefetchDataset": "_buffer_size"}
    if kind.lstrip("_") not in sizes:
        return None
    elements = int(getattr(dataset, sizes[kind.lstrip("_")]))
    name = "shuffle" if "Shuffle" in kind else "prefetch"
    if elements < 0:
        return None  # the autotuner chooses it, within the budget
    count = int(dataset.cardinality())
    held = min(elements, count) if count >= 0 else elements
    return Stage(f"{name}({elements})", held * _element_bytes(inputs[0]))


def _element_bytes(dataset: Any) -> int:
    """The bytes of an element: from its shapes, or of the first ones where they do not say."""
    tf = tensorflow()
    total = 0
    for spec in tf.nest.flatten(dataset.element_spec):
        known = isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string and spec.shape.rank is not None
        dimensions: list[Any] = list(spec.shape) if known else [None]
        if dimensions and dimensions[0] is None:
            dimensions[0] = _batch_size(dataset)
        if not known or None in dimensions:
            return max((_bytes_of(element) for element in _before_a_file(dataset).take(_LOOKED_AT)), default=0)
        total += math.prod(dimensions) * spec.dtype.size
    return total


def _batch_size(dataset: Any) -> int | None:
    """What it was batched with, somewhere before."""
    for each in lineage(dataset):
        size = getattr(each, "_batch_size", None)
        if size is not None:
            return int(size)
    return None


def _before_a_file(dataset: Any) -> Any:
    """What comes before a cache in a file: looking at a few elements behind it would leave the file half written."""
    for each in lineage(dataset):
        if type(each).__name__ == "CacheDataset":
            dataset = each._inputs()[0]
    return dataset


def _bytes_of(element: Any) -> int:
    tf = tensorflow()
    total = 0
    for part in tf.nest.flatten(element, expand_composites=True):
        if part.dtype == tf.string:
            total += int(tf.reduce_sum(tf.strings.length(part)))
        else:
            total += int(tf.size(part)) * part.dtype.size
    return total
