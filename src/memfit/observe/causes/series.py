"""The steps of a record as numbers to judge by: where warm-up ends, what is steady, what rises."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from memfit.observe.record import Record, Steps

# Until then a step is traced and tuned, and the recorder profiles the fourth.
WARM_UP_STEPS = 5
_PARTS = 8
_LEAST_LINES = 3 * _PARTS
_LEAST_EPOCHS = 5
# The second half's rise against the first's: a leak's is 1; what levels off, with half its growth in the first third of
# a run, is 0.35.
_KEEPS_RISING = 0.7


@dataclass(frozen=True)
class Rise:
    """A floor that rises steadily."""

    bytes: int
    """From the first part to the last."""
    steps: int
    """In between."""
    first: int
    last: int

    @property
    def per_step(self) -> float:
        """The bytes a step adds."""
        return self.bytes / max(1, self.steps)


def of_phase(record: Record, phase: str) -> list[Steps]:
    """The lines of one phase, in order."""
    return [line for line in record.steps if line.phase == phase]


def last_at(record: Record) -> float:
    """When the record ends."""
    ends = [record.end.at] if record.end else []
    return max([*ends, *(line.at for line in record.steps[-1:]), *(line.at for line in record.epochs[-1:])], default=0)


def after_warm_up(record: Record, phase: str = "train", *, first_epoch: bool = True) -> list[Steps]:
    """The steady lines of a phase.

    Args:
        record: The record.
        phase: The phase.
        first_epoch: Whether the first pass over the data counts; during it data sets fill their caches.
    """
    lines = [line for line in of_phase(record, phase) if line.first > WARM_UP_STEPS]
    if first_epoch:
        return lines
    over = next((epoch.at for epoch in record.epochs if epoch.phase == phase), None)
    return [] if over is None else [line for line in lines if line.at > over]


def steady_peak(lines: Sequence[Steps]) -> int | None:
    """The highest peak of some lines; `None` where none is known."""
    return max((line.peak_bytes for line in lines if line.peak_bytes is not None), default=None)


def in_use(line: Steps) -> int | None:
    """What stays in use between steps: the least where a line stands for several."""
    return line.least_in_use_bytes if line.least_in_use_bytes is not None else line.in_use_bytes


def steady_rise(record: Record, lines: Sequence[Steps], value: Callable[[Steps], int | None]) -> Rise | None:
    """How the floor of some lines rises, if it does so steadily; noise and what levels off are no rise.

    The lines are cut into eight parts, or at the ends of epochs where something is added once in each. The least of
    every part must rise from part to part, in the second half nearly as much as in the first, and near to a straight
    line.
    """
    known = [(line, size) for line in lines if (size := value(line)) is not None]
    if len(known) < _LEAST_LINES:
        return None
    length = len(known) / _PARTS
    parts = [known[round(at * length) : round((at + 1) * length)] for at in range(_PARTS)]
    for cut, most_flat in ((parts, 1), (_by_epoch(record, known), 0)):
        floors = [min(size for _, size in part) for part in cut]
        if len(floors) > _LEAST_EPOCHS - 1 and _is_steady(floors, most_flat):
            steps = known[-1][0].first - known[0][0].first
            return Rise(floors[-1] - floors[0], round(steps * (len(floors) - 1) / len(floors)), floors[0], floors[-1])
    return None


def _by_epoch(record: Record, known: Sequence[tuple[Steps, int]]) -> list[list[tuple[Steps, int]]]:
    ends = [epoch.at for epoch in record.epochs if epoch.phase == "train"]
    parts: dict[int, list[tuple[Steps, int]]] = {}
    for line, size in known:
        parts.setdefault(sum(end < line.at for end in ends), []).append((line, size))
    return list(parts.values())


def _is_steady(floors: Sequence[int], most_flat: int) -> bool:
    rises = [after - before for before, after in pairwise(floors)]
    if min(rises) < 0 or sum(rise == 0 for rise in rises) > most_flat:
        return False
    half = len(floors) // 2
    if floors[-1] - floors[-1 - half] < _KEEPS_RISING * (floors[half] - floors[0]):
        return False
    # Theil and Sen's slope: half of the parts may be off without moving it.
    slope = median((floors[b] - floors[a]) / (b - a) for a in range(len(floors)) for b in range(a + 1, len(floors)))
    middle = median(floor - slope * at for at, floor in enumerate(floors))
    off = median(abs(floor - middle - slope * at) for at, floor in enumerate(floors))
    return off <= 0.1 * (floors[-1] - floors[0])
