"""Steps and profiled steps, thinned so that a page stays small: neighbours are put together, extremes are kept."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from memfit.observe.record import Steps, Timeline

_Name = TypeVar("_Name", str, str | None)

# 4000 lines are what the recorder writes for 100,000 steps, 300 KB on the page, and four points to a pixel.
MOST_ROWS = 4000
MOST_TIMELINES = 4
# Of all profiled steps together: with operations of 150 letters, 1.5 MB.
MOST_POINTS = 6000
MOST_TENSORS = 500
_MOST_LAYERS = 60
_MOST_LETTERS = 300
# Operations of two parts overlap where they meet; a band shorter than this share of the step is not told apart.
_SHORTEST_BAND = 0.01
COLUMNS = (
    "at", "phase", "epoch", "first", "count", "seconds", "slowest_seconds", "in_use_bytes", "least_in_use_bytes",
    "peak_bytes", "host_bytes",
)  # fmt: skip


def series(steps: "Sequence[Steps]") -> dict[str, list[Any]]:
    """Every column of the run's timeline, in the order of time."""
    rows = [_together(lines) for lines in _neighbours(sorted(steps, key=lambda line: line.at))]
    return {name: [row[name] for row in rows] for name in COLUMNS}


def _neighbours(ordered: "list[Steps]") -> "list[list[Steps]]":
    """Lines that follow each other, few enough together; of one phase, unless phases change too often for that."""
    least = -(-len(ordered) // MOST_ROWS) or 1
    phases = [list(run) for _, run in groupby(ordered, key=lambda line: line.phase)]
    for together in (least, 2 * least, 4 * least):
        found = [part for run in phases for part in _parts(run, together)]
        if len(found) <= MOST_ROWS:
            return found
    return _parts(ordered, least)


def _parts(lines: "list[Steps]", together: int) -> "list[list[Steps]]":
    return [lines[at : at + together] for at in range(0, len(lines), together)]


def _together(lines: "Sequence[Steps]") -> dict[str, Any]:
    """Neighbouring lines as one: the highest peak, the least in use, the mean time."""
    last = lines[-1]
    # Where phases meet, the one the peak comes from gives its name.
    highest = max(lines, key=lambda line: line.peak_bytes or 0)
    count = sum(line.count for line in lines)
    timed = [line for line in lines if line.seconds is not None]
    steps_timed = sum(line.count for line in timed)
    return {
        "at": last.at,
        "phase": highest.phase,
        "epoch": highest.epoch,
        "first": next(line.first for line in lines if line.phase == highest.phase),
        "count": count,
        "seconds": sum((line.seconds or 0) * line.count for line in timed) / steps_timed if steps_timed else None,
        "slowest_seconds": _known(max, (line.slowest_seconds for line in lines)),
        "in_use_bytes": last.in_use_bytes,
        "least_in_use_bytes": _known(min, (line.least_in_use_bytes for line in lines)),
        "peak_bytes": highest.peak_bytes,
        "host_bytes": _known(max, (line.host_bytes for line in lines)),
    }


def _known(choose: Callable[[list[Any]], Any], values: Iterable[Any]) -> Any:
    """The largest or least of what is known; `None` if nothing is."""
    found = [value for value in values if value is not None]
    return choose(found) if found else None


def profiled_steps(timelines: "Sequence[Timeline]") -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """The profiled steps with the highest peaks, and the table of operations their points refer to."""
    kept = sorted(timelines, key=lambda line: -(line.peak_bytes or 0))[:MOST_TIMELINES]
    numbers: dict[tuple[str, str, str | None, str], int] = {}

    def operation(timeline: "Timeline", index: int) -> tuple[str, str, str | None, str]:
        if not 0 <= index < len(timeline.names):
            return "", "", None, "other"
        known = timeline.names[index]
        return _clipped(known.op), known.op_type, _clipped(known.layer), known.part

    shown = []
    for timeline in sorted(kept, key=lambda line: line.at):
        points = [
            [point[0], point[1], numbers.setdefault(operation(timeline, point[2]), len(numbers)), point[3]]
            for point in thin_points(timeline.points, MOST_POINTS // len(kept))
        ]
        shown.append(
            {
                "at": timeline.at,
                "phase": timeline.phase,
                "step": timeline.step,
                "seconds": timeline.seconds,
                "base_bytes": timeline.base_bytes,
                "peak_bytes": timeline.peak_bytes,
                "points": points,
                "points_recorded": len(timeline.points),
                "bands": bands([(point[0], operation(timeline, point[2])[3]) for point in timeline.points]),
                **at_peak(timeline),
            }
        )
    return shown, [list(key) for key in numbers]


def thin_points(points: "Sequence[Sequence[int]]", most: int) -> "list[Sequence[int]]":
    """At most so many points, with the highest and the lowest of each stretch."""
    if len(points) <= most:
        return list(points)
    stretch = -(-2 * len(points) // most)
    kept: list[Sequence[int]] = []
    for start in range(0, len(points), stretch):
        part = range(start, min(start + stretch, len(points)))
        ends = {max(part, key=lambda at: points[at][1]), min(part, key=lambda at: points[at][1])}
        kept += [points[at] for at in sorted(ends)]
    return kept


def bands(moments: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """The stretches of forward, backward and update, in the order of time.

    Args:
        moments: Microseconds and the part of the operation that ran there.
    """
    if not moments:
        return []
    shortest = _SHORTEST_BAND * (moments[-1][0] - moments[0][0])
    starts = [(part, next(run)[0]) for part, run in groupby(moments, key=lambda moment: moment[1])]
    stops = [start for _, start in starts[1:]] + [moments[-1][0]]
    merged: list[dict[str, Any]] = []
    for (part, start), stop in zip(starts, stops, strict=True):
        if part == "other" or stop - start < shortest:
            continue
        if merged and merged[-1]["part"] == part:
            merged[-1]["to_us"] = stop
        else:
            merged.append({"part": part, "from_us": start, "to_us": stop})
    return merged


def at_peak(timeline: "Timeline") -> dict[str, Any]:
    """What is in memory at the peak of a profiled step: the largest tensors, and all of it by layer and kind."""
    tensors = timeline.at_peak
    total = sum(tensor.bytes for tensor in tensors)
    rest = tensors[MOST_TENSORS:]
    return {
        "at_peak": [
            {
                "op": _clipped(tensor.op), "op_type": tensor.op_type, "layer": _clipped(tensor.layer),
                "part": tensor.part, "kind": tensor.kind, "bytes": tensor.bytes,
                "shape": None if tensor.shape is None else list(tensor.shape), "dtype": tensor.dtype,
            }
            for tensor in tensors[:MOST_TENSORS]
        ],
        "at_peak_left_out": len(rest),
        "at_peak_left_out_bytes": sum(tensor.bytes for tensor in rest),
        "not_attributed_bytes": None if timeline.peak_bytes is None else max(0, timeline.peak_bytes - total),
        "by_layer": by_layer((_clipped(tensor.layer), tensor.kind, tensor.bytes) for tensor in tensors),
    }  # fmt: skip


def _clipped(name: _Name) -> _Name:
    """A name as long as anybody reads."""
    return name if name is None or len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}…"


def by_layer(held: Iterable[tuple[str | None, str, int]]) -> list[dict[str, Any]]:
    """Bytes by layer and kind, largest layer first; beyond the first sixty they are put together."""
    layers: dict[str | None, dict[str, int]] = {}
    for layer, kind, size in held:
        if size > 0:
            kinds = layers.setdefault(layer, {})
            kinds[kind] = kinds.get(kind, 0) + size
    ordered = sorted(layers.items(), key=lambda item: -sum(item[1].values()))
    small: dict[str, int] = {}
    for _, kinds in ordered[_MOST_LAYERS:]:
        for kind, size in kinds.items():
            small[kind] = small.get(kind, 0) + size
    shown = [{"layer": layer, "layers": 1, "kinds": kinds} for layer, kinds in ordered[:_MOST_LAYERS]]
    if small:
        shown.append({"layer": None, "layers": len(ordered) - _MOST_LAYERS, "kinds": small})
    return shown
