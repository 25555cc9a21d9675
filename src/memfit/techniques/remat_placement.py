"""Where to cut a model into segments, so that the backward pass holds least.

When the backward pass is in a segment it holds that segment's insides, recomputed, and what crosses the cuts before it;
what crossed the cuts behind it is gone. The largest such sum over all segments is what a placement costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memfit.errors import InputError
from memfit.techniques.layer_graph import LayerCall, LayerGraph

# How many tensors of its output's size a layer's gradient keeps, where that is not one: sums keep nothing, and batch
# normalisation needs what its convolution keeps anyway.
_KEPT = {
    "Add": 0,
    "BatchNormalization": 0,
    "Concatenate": 0,
    "Dropout": 1.25,
    "Flatten": 0,
    "GroupNormalization": 2,
    "LayerNormalization": 2,
    "MultiHeadAttention": 5,
    "Reshape": 0,
    "ZeroPadding2D": 0,
}
# Tensors of a segment's largest size that its gradient has in use at a time besides what is kept.
_IN_USE = 3
_SEARCH_STEPS = 30
# Between the first and the last layer of a segment.
RANGE = ".."

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Segment:
    """Calls `start` to `stop` of a graph, run as one and recomputed for their gradients."""

    start: int
    stop: int


def by_bytes(graph: LayerGraph, count: int, *, last: bool = False) -> list[Segment]:
    """Cut into `count` segments that cost least; all but the last are returned.

    The backward pass begins with the last segment: it would recompute what has just been computed.

    Args:
        graph: What to cut.
        count: How many segments.
        last: Return the last segment too, where other models may run behind it.
    """
    calls = graph.calls
    if not 2 <= count <= len(calls):
        raise InputError(
            f"remat={count} is not possible here: the model has {len(calls)} layer calls to cut into 2 or more."
        )
    inside, crossing = _inside(calls), _crossing(graph)
    low, high = 0.0, float(inside[0, -1] + crossing.sum())
    edges = [0, len(calls)]
    for _ in range(_SEARCH_STEPS):
        middle = (low + high) / 2
        found = _within(inside, crossing, count, middle)
        if found is None:
            low = middle
        else:
            high, edges = middle, found
    return [Segment(start, stop) for start, stop in pairwise(edges if last else edges[:-1])]


def by_name(graph: LayerGraph, names: Sequence[str]) -> list[Segment]:
    """One segment for each `"first..last"`, and for each run of named layers or nested models without a gap."""
    parts = [(call.name, *call.name.split("/")) for call in graph.calls]
    known = {part for each in parts for part in each}
    ranges = [name for name in names if name not in known and RANGE in name]
    ends = [end for name in ranges for end in name.split(RANGE, 1)]
    if unknown := [name for name in (*(set(names) - set(ranges)), *ends) if name not in known]:
        layers = ", ".join(list(dict.fromkeys(each[1] for each in parts))[:8])
        raise InputError(f"remat names layers the model does not have: {', '.join(unknown)}. It has {layers}, ...")
    segments = [_between(parts, name) for name in ranges]
    run: Segment | None = None
    for position, each in enumerate(parts):
        if not any(part in names for part in each):
            continue
        if run and run.stop == position:
            segments.remove(run)
        run = Segment(run.start if run and run.stop == position else position, position + 1)
        segments.append(run)
    segments.sort(key=lambda segment: segment.start)
    for before, after in pairwise(segments):
        if after.start < before.stop:
            raise InputError(f"remat names {graph.calls[after.start].name!r} twice: segments must not overlap.")
    return segments


def split(segments: Sequence[Segment], counts: Sequence[int]) -> list[list[Segment]]:
    """Segments of joined graphs as segments of each graph.

    Args:
        segments: Cuts of the joined graph. One that reaches across a border becomes two.
        counts: How many calls each graph has.
    """
    borders = np.cumsum([0, *counts]).tolist()
    return [
        [
            Segment(max(segment.start, start) - start, min(segment.stop, stop) - start)
            for segment in segments
            if segment.start < stop and segment.stop > start
        ]
        for start, stop in pairwise(borders)
    ]


def _between(parts: Sequence[tuple[str, ...]], name: str) -> Segment:
    first, last = name.split(RANGE, 1)
    start = next(at for at, each in enumerate(parts) if first in each)
    stop = 1 + max(at for at, each in enumerate(parts) if last in each)
    if stop <= start:
        raise InputError(f"remat={name!r} ends before it begins: {last!r} runs before {first!r}.")
    return Segment(start, stop)


def _inside(calls: Sequence[LayerCall]) -> Matrix:
    """What the gradient of calls `start` to `stop` holds, for every pair."""
    count = len(calls)
    kept = np.cumsum([0.0, *(_kept(call) for call in calls)])
    largest = np.zeros((count + 1, count + 1))
    for stop, call in enumerate(calls, 1):
        largest[:stop, stop] = np.maximum(largest[:stop, stop - 1], max(call.sample_bytes, default=0))
    held: Matrix = kept[None, :] - kept[:, None] + _IN_USE * largest
    return held


def _kept(call: LayerCall) -> float:
    size = sum(call.sample_bytes) * _KEPT.get(type(call.layer).__name__, 1.0)
    if type(call.layer).__name__ == "MultiHeadAttention":
        steps = call.layer.output.shape[1] or 1
        size += 3 * 4 * call.layer.num_heads * steps**2  # what softmax and dropout keep of the scores
    return size


def _crossing(graph: LayerGraph) -> Matrix:
    """Bytes made in calls `start` to `stop` and used behind `stop`, for every pair."""
    count = len(graph.calls)
    last = graph.last_use()
    made: Matrix = np.zeros((count + 1, count + 1))
    for position, call in enumerate(graph.calls):
        for place, size in zip(call.outputs, call.sample_bytes, strict=True):
            made[: position + 1, position + 1 : last.get(place, position) + 1] += size
    return made


def _within(inside: Matrix, crossing: Matrix, count: int, limit: float) -> list[int] | None:
    """Edges of segments that never hold more than `limit`, with the least across the cuts; `None` if there are none."""
    positions = len(inside)
    ahead = np.triu(np.ones((positions, positions), bool), 1)
    across = np.full(positions, np.inf)
    across[0] = 0
    came_from = []
    for _ in range(count):
        allowed = ahead & (across[:, None] + inside <= limit)
        through = np.where(allowed, across[:, None] + crossing, np.inf)
        came_from.append(through.argmin(axis=0))
        across = through.min(axis=0)
    if not np.isfinite(across[-1]):
        return None
    edges = [positions - 1]
    for origins in reversed(came_from):
        edges.append(int(origins[edges[-1]]))
    return edges[::-1]
