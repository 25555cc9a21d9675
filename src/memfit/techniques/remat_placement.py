"""Where to cut a model into segments, so that what is kept between them and inside one of them is least."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memfit.errors import InputError
from memfit.techniques.layer_graph import LayerCall, LayerGraph

# How many tensors of its output's size a layer's backward pass keeps, where it is not one.
_KEPT = {
    "BatchNormalization": 2,
    "LayerNormalization": 2,
    "GroupNormalization": 2,
    "Dropout": 2,
    "MultiHeadAttention": 6,
}
_CANDIDATES = 48  # how many sizes of the largest segment are tried


@dataclass(frozen=True)
class Segment:
    """Calls `start` to `stop` of a graph, run as one and recomputed for their gradients."""

    start: int
    stop: int


def by_bytes(graph: LayerGraph, count: int) -> list[Segment]:
    """Cut into `count` segments: least bytes at the cuts plus bytes inside the largest segment."""
    calls = graph.calls
    if not 2 <= count <= len(calls):
        raise InputError(f"remat={count} needs 2 to {len(calls)} segments, as many as there are layer calls.")
    kept = np.cumsum([0, *(_kept(call) for call in calls)])
    crossing = _crossing(graph)
    largest = np.unique(np.quantile(_segment_sizes(kept), np.linspace(0, 1, _CANDIDATES)).astype(np.int64))
    best, best_edges = np.inf, [0, len(calls)]
    for limit in largest:
        cuts = _cheapest_cuts(kept, crossing, count, int(limit))
        if cuts is None:
            continue
        edges = [0, *cuts, len(calls)]
        inside = max(kept[stop] - kept[start] for start, stop in pairwise(edges))
        total = inside + sum(crossing[start, stop] for start, stop in pairwise(edges))
        if total < best:
            best, best_edges = total, edges
    # The backward pass begins with the last segment: it would recompute what it has just computed.
    return [Segment(start, stop) for start, stop in pairwise(best_edges[:-1])]


def by_name(graph: LayerGraph, names: Sequence[str]) -> list[Segment]:
    """One segment for each run of named layers (or layers of named nested models) that follow each other."""
    wanted = [any(part in names for part in (*call.name.split("/"), call.name)) for call in graph.calls]
    known = {part for call in graph.calls for part in (*call.name.split("/"), call.name)}
    if unknown := [name for name in names if name not in known]:
        layers = ", ".join(sorted(each for each in known if "/" not in each)[:12])
        raise InputError(f"remat names layers the model does not have: {', '.join(unknown)}. It has {layers}, ...")
    segments: list[Segment] = []
    for position, named in enumerate(wanted):
        if named and segments and segments[-1].stop == position:
            segments[-1] = Segment(segments[-1].start, position + 1)
        elif named:
            segments.append(Segment(position, position + 1))
    return segments


def _kept(call: LayerCall) -> int:
    return sum(call.sample_bytes) * _KEPT.get(type(call.layer).__name__, 1)


def _segment_sizes(kept: np.ndarray) -> np.ndarray:
    return (kept[None, :] - kept[:, None])[np.triu_indices(len(kept), 1)]


def _crossing(graph: LayerGraph) -> np.ndarray:
    """Bytes made in calls `start` to `stop` and used behind `stop`, for every pair."""
    count = len(graph.calls)
    last = graph.last_use()
    made = np.zeros((count + 1, count + 1))
    for position, call in enumerate(graph.calls):
        for place, size in zip(call.outputs, call.sample_bytes, strict=True):
            until = last.get(place, position)
            # Kept at a cut behind `stop` for position < stop <= until, whatever `start` <= position.
            made[: position + 1, position + 1 : until + 1] += size
    return made


def _cheapest_cuts(kept: np.ndarray, crossing: np.ndarray, count: int, limit: int) -> list[int] | None:
    """Cuts with the least bytes across them, no segment over `limit`; `None` if there are none."""
    positions = len(kept)
    allowed = (kept[None, :] - kept[:, None] <= limit) & np.triu(np.ones((positions, positions), bool), 1)
    cost = np.where(allowed, crossing, np.inf)
    best = np.full(positions, np.inf)
    best[0] = 0
    came_from = np.zeros((count, positions), int)
    for segment in range(count):
        through = best[:, None] + cost
        came_from[segment] = through.argmin(axis=0)
        best = through.min(axis=0)
    if not np.isfinite(best[-1]):
        return None
    cuts, position = [], positions - 1
    for segment in range(count - 1, 0, -1):
        position = int(came_from[segment][position])
        cuts.append(position)
    return cuts[::-1]
