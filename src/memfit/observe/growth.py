"""How a record stays small however long the run: the first of everything, then every second, every fourth, ..."""

import math
from dataclasses import dataclass

from memfit.observe.events import Steps

LINES_BEFORE_DOUBLING = 512


class Doubling:
    """Says of a stream of things which are due: the first 512, then 512 times every second, then every fourth.

    `n` things make some 512 · log2(n / 512) lines: 100,000 make 4,000.
    """

    def __init__(self, lines: int = LINES_BEFORE_DOUBLING) -> None:
        self._lines = lines
        self._stride = 1
        self._waiting = 0
        self._due = 0

    def due(self) -> bool:
        """Count one more; whether it is one that counts."""
        self._waiting += 1
        if self._waiting < self._stride:
            return False
        self._waiting = 0
        self._due += 1
        if self._due % self._lines == 0:
            self._stride *= 2
        return True


@dataclass
class _Block:
    """The steps since the last line."""

    count: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    in_use: int | None = None
    least_in_use: float = math.inf
    peak: int | None = None


class StepBlocks:
    """Puts the steps of one phase together into lines."""

    def __init__(self, phase: str, steps: int = 0) -> None:
        self.phase = phase
        self.steps = steps
        """How many there were, over the whole run."""
        self._lines = Doubling()
        self._partial = Doubling()
        self._block = _Block()

    def add(self, steps: int, seconds: float, in_use: int | None, peak: int | None) -> bool:
        """Take one execution of the step function, which is one step or `steps_per_execution` of them.

        Args:
            steps: How many.
            seconds: How long all of them took.
            in_use: The bytes in use afterwards.
            peak: The most bytes in use meanwhile.

        Returns:
            Whether a line is due.
        """
        block = self._block
        self.steps += steps
        block.count += steps
        block.seconds += seconds
        block.slowest = max(block.slowest, seconds / steps)
        if in_use is not None:
            block.in_use = in_use
            block.least_in_use = min(block.least_in_use, in_use)
        if peak is not None:
            block.peak = peak if block.peak is None else max(block.peak, peak)
        return self._lines.due()

    def partial_due(self) -> bool:
        """Say that a fit, an evaluation or a prediction is over; whether to write what has come together so far.

        Thinned like everything else, for those who call `predict` on one batch a hundred thousand times.
        """
        return self._block.count > 0 and self._partial.due()

    def line(self, at: float, epoch: int | None, host_bytes: int | None) -> Steps | None:
        """The steps since the last line, as one; `None` if there were none."""
        block, self._block = self._block, _Block()
        if not block.count:
            return None
        return Steps(
            at=at,
            phase=self.phase,
            epoch=epoch,
            first=self.steps - block.count + 1,
            count=block.count,
            seconds=round(block.seconds / block.count, 6),
            slowest_seconds=round(block.slowest, 6),
            in_use_bytes=block.in_use,
            least_in_use_bytes=None if block.in_use is None else int(block.least_in_use),
            peak_bytes=block.peak,
            host_bytes=host_bytes,
        )
