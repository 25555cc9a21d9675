"""Which segments to recompute: the least time for every limit on what the backward pass holds.

Going through the pieces in order, each is kept or part of a segment that is recomputed. When the backward pass is in a
segment it holds what was kept before it, the segment's insides and what its gradients have in use. For each place the
ways to get there are kept that no other beats in both bytes and time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from memfit.planning.cost import Numbers
from memfit.planning.pieces import Pieces

# Ways kept for each place; more change nothing that can be seen in the peak.
_MOST_WAYS = 32


@dataclass(frozen=True)
class Outcome:
    """What a placement does to the step, simulated."""

    peak: int
    call: int | None
    """The call that was at work at the peak."""
    seconds: float


Segments = tuple[tuple[int, int], ...]
Simulate = Callable[[Segments], Outcome]


def placements(pieces: Pieces, simulate: Simulate, *, limits: int, rounds: int) -> list[Segments]:
    """The fastest placements for limits from what nothing recomputed holds down to the least there is.

    Sums of bytes leave out in which order the executor runs a segment. So each round tells the next how much more than
    its sum a piece was simulated to hold.

    Args:
        pieces: The model.
        simulate: What a placement really takes.
        limits: How many limits to try in each round.
        rounds: How often to go from the largest limit to the least.
    """
    found: dict[Segments, None] = {}
    beside = simulate(()).peak - _most(pieces)
    for _ in range(rounds):
        most = _most(pieces)
        more = np.zeros(len(pieces))
        for limit in np.linspace(most, _least(pieces, most), limits):
            segments = _fastest(pieces, float(limit))
            if segments is None or segments in found:
                continue
            found[segments] = None
            outcome = simulate(segments)
            if outcome.call is not None:
                piece = int(np.searchsorted(pieces.edges, outcome.call, side="right")) - 1
                more[piece] = max(more[piece], outcome.peak - beside - limit)
        pieces = replace(pieces, in_use=pieces.in_use + more)
    return list(found)


def _most(pieces: Pieces) -> float:
    return float(np.max(np.cumsum(pieces.kept) + pieces.in_use))


def _least(pieces: Pieces, most: float) -> float:
    low, high = 0.0, most
    while high - low > most / 512:
        middle = (low + high) / 2
        if _fastest(pieces, middle) is None:
            low = middle
        else:
            high = middle
    return high


class _Ways:
    """For each place the ways to get there, at most `_MOST_WAYS`: bytes kept, seconds, and where each came from."""

    def __init__(self, places: int) -> None:
        self.held, self.seconds = (np.full((places, _MOST_WAYS), np.inf) for _ in range(2))
        self.came_from = np.zeros((places, _MOST_WAYS, 3), int)
        """Whether the piece before was recomputed, the place before and the way there."""

    def keep(self, place: int, held: Numbers, seconds: Numbers, came_from: Numbers) -> None:
        """Keep those that no other beats, thinned out evenly."""
        order = np.lexsort((seconds, held))
        best = np.minimum.accumulate(seconds[order])
        better = order[np.concatenate(([True], best[1:] < best[:-1]))] if len(order) else order
        if len(better) > _MOST_WAYS:
            better = better[np.unique(np.linspace(0, len(better) - 1, _MOST_WAYS).astype(int))]
        self.held[place, : len(better)] = held[better]
        self.seconds[place, : len(better)] = seconds[better]
        self.came_from[place, : len(better)] = came_from[better]


def _fastest(pieces: Pieces, limit: float) -> Segments | None:
    """The segments that take the least time and never hold more than `limit`."""
    count = len(pieces)
    sums = np.concatenate(([0.0], np.cumsum(pieces.kept)))
    times = np.concatenate(([0.0], np.cumsum(pieces.seconds)))
    # The ways that end with a kept piece, and those that end with a segment.
    both = (_Ways(count + 1), _Ways(count + 1))
    both[0].held[0, 0] = both[0].seconds[0, 0] = 0.0
    in_use = np.zeros(count)
    for stop in range(1, count + 1):
        last = stop - 1
        in_use[:stop] = np.maximum(in_use[:stop], pieces.in_use[last])
        inside = (sums[stop] - sums[:stop] + in_use[:stop])[:, None]
        again = (times[stop] - times[:stop])[:, None]
        across = pieces.crossing[:stop, stop][:, None]
        kept, cut = [], []
        for kind, ways in enumerate(both):
            held = ways.held[last] + pieces.kept[last]
            kept.append(_chosen(held, ways.seconds[last], held + pieces.in_use[last] <= limit, kind, last))
            entering = pieces.entering[:stop, None] if kind == 0 else 0.0
            held = ways.held[:stop] + entering
            cut.append(_chosen(held + across, ways.seconds[:stop] + again, held + inside <= limit, kind, 0))
        for ways, parts in zip(both, (kept, cut), strict=True):
            ways.keep(stop, *(np.concatenate(column) for column in zip(*parts, strict=True)))
    ends = [float(ways.seconds[count].min()) for ways in both]
    return _segments(pieces, both, int(np.argmin(ends))) if min(ends) < np.inf else None


def _chosen(held: Numbers, seconds: Numbers, fits: Numbers, kind: int, place: int) -> tuple[Numbers, Numbers, Numbers]:
    """The ways that fit, with where they came from; `place` is that of the first row."""
    where = np.nonzero(fits)
    places = where[0] + place if fits.ndim > 1 else np.full(len(where[0]), place)
    return held[where], seconds[where], np.stack((np.full(len(places), kind), places, where[-1]), axis=1)


def _segments(pieces: Pieces, both: tuple[_Ways, _Ways], kind: int) -> Segments:
    """Follow the fastest way back."""
    found = []
    place = len(pieces)
    way = int(both[kind].seconds[place].argmin())
    while place > 0:
        kind_before, before, way = (int(each) for each in both[kind].came_from[place, way])
        if kind:
            found.append((pieces.edges[before], pieces.edges[place]))
        kind, place = kind_before, before
    return tuple(reversed(found))
