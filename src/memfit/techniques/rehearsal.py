"""Which sizes inside a slice's computation follow the number of samples.

In a traced slice the number of rows is unknown, and so is, for example, the length of its sequences. Where that makes a
size ambiguous, the slice is traced again with every size known, for two different numbers of rows: what differs between
the two follows the samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Two numbers of rows, and what stands in for every other unknown size.
ROWS = (3, 5)
OTHER_SIZE = 4


class RehearsalNeeded(Exception):  # noqa: N818 (not an error)
    """A size is ambiguous; trace the slice with known sizes first."""


@dataclass
class Rehearsal:
    """What traces with known sizes showed.

    Args:
        one_unknown: Whether the number of rows is the only unknown size of the data.
    """

    one_unknown: bool
    done: bool = False
    _draws: list[list[Any]] = field(default_factory=list)
    _pieces: list[list[Any]] = field(default_factory=list)
    _recording: bool = False
    _next_draw: int = 0
    _next_piece: int = 0

    def begin(self) -> None:
        """A trace of the slice begins."""
        self._next_draw = self._next_piece = 0
        if self._recording:
            self._draws.append([])
            self._pieces.append([])

    def record(self, recording: bool) -> None:
        """Whether the following traces are with known sizes."""
        self._recording = recording
        self.done = not recording

    def axis_of_draw(self, dimensions: Sequence[Any]) -> int | None:
        """Which dimension of the next draw is the batch's."""
        if self._recording:
            self._draws[-1].append(list(dimensions))
            return None
        unknown = [axis for axis, each in enumerate(dimensions) if not isinstance(each, int)]
        at, self._next_draw = self._next_draw, self._next_draw + 1
        if not unknown:
            return None
        if self.one_unknown:
            return unknown[0]
        if not self.done:
            raise RehearsalNeeded
        first, second = (each[at] if at < len(each) else None for each in self._draws)
        if first is None or second is None:
            return unknown[0]
        return next((axis for axis in unknown if _differ(first[axis], second[axis])), None)

    def follows_samples(self, rows: int | None, *, data_dependent: bool) -> bool:
        """Whether the next piece of a gradient has rows for each sample.

        Args:
            rows: How many rows it has, if that is known.
            data_dependent: Whether which rows depends on the data, not only on its shape.
        """
        if self._recording:
            self._pieces[-1].append(rows)
            return True
        at, self._next_piece = self._next_piece, self._next_piece + 1
        if rows is not None:
            return False
        if data_dependent:
            return True
        if not self.done:
            raise RehearsalNeeded
        first, second = (each[at] if at < len(each) else None for each in self._pieces)
        return _differ(first, second)


def _differ(first: Any, second: Any) -> bool:
    """Whether a size follows the samples: one that is unknown even now comes from the data, so it does."""
    return not (isinstance(first, int) and isinstance(second, int)) or first != second
