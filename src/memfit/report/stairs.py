"""What each budget costs in time, as one small SVG: stairs with a dot for each way to train."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil

from memfit.units import format_size

# In pixels: the drawing, and in it the ends of its axes; the rest is for labels.
_WIDTH, _HEIGHT = 560, 252
_ACROSS, _UP = (56, 530), (206, 32)
_BLUE = "#4878a8"
# Opaque, so that the line does not shine through a dot.
_PALE = "#d3e0ec"
# The notebook's own colour of text, so that it can be read in the light and in the dark.
_LABEL = "fill='currentColor' font-size='11' font-family='sans-serif'"


@dataclass(frozen=True)
class Dot:
    """One way to train."""

    budget: int
    percent: float
    """The time of a step against plain: 12 is 12 % more."""
    filled: bool
    title: str


def stairs_svg(dots: Sequence[Dot]) -> str:
    """Draw the least time each budget allows.

    Args:
        dots: At least one, in any order.
    """
    dots = sorted(dots, key=lambda each: each.budget)
    budgets = [each.budget for each in dots]
    x = _Axis.around(budgets, _ACROSS, least=0.1 * max(budgets))
    # Plain is what the others are measured by, so its time is always in the picture.
    y = _Axis.around([0, *(each.percent for each in dots)], _UP, least=10)
    stairs = f"M{x.at(dots[0].budget)} {y.at(dots[0].percent)}" + "".join(
        f"H{x.at(each.budget)}V{y.at(each.percent)}" for each in dots[1:]
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' width='{_WIDTH}' "
        "style='max-width:100%' role='img' aria-label='Step time against plain for each budget'>"
        f"{_sizes(x)}{_times(y)}<path d='{stairs}H{_ACROSS[1]}' fill='none' stroke='{_BLUE}' stroke-width='1.5'/>"
        f"{''.join(_circle(each, x, y) for each in dots)}</svg>"
    )


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    ends: tuple[int, int]

    @classmethod
    def around(cls, values: Sequence[float], ends: tuple[int, int], *, least: float) -> "_Axis":
        """With some room beside the values, and at least so much from end to end."""
        low, high = min(values), max(values)
        room = max(0.06 * (high - low), (least - (high - low)) / 2)
        return cls(low - room, high + room, ends)

    def at(self, value: float) -> str:
        start, stop = self.ends
        return f"{start + (stop - start) * (value - self.low) / (self.high - self.low):.1f}"

    def ticks(self, steps: Iterable[float]) -> list[float]:
        """A few round values, by the first step that is large enough."""
        step = next(each for each in steps if self.high - self.low <= 6 * each)
        first = ceil(self.low / step)
        return [step * at for at in range(first, first + 7) if step * at <= self.high]


def _sizes(x: _Axis) -> str:
    below = _UP[0] + 17
    labels = "".join(
        f"<path d='M{x.at(size)} {_UP[0]}v4' stroke='currentColor' stroke-opacity='0.6'/>"
        f"<text x='{x.at(size)}' y='{below}' text-anchor='middle' {_LABEL}>{format_size(int(size))}</text>"
        for size in x.ticks(2.0**power for power in range(64))
    )
    middle = sum(_ACROSS) // 2
    return f"{labels}<text x='{middle}' y='{below + 20}' text-anchor='middle' {_LABEL}>budget</text>"


def _times(y: _Axis) -> str:
    left, right = _ACROSS
    return f"<text x='{left}' y='13' {_LABEL}>time of a step</text>" + "".join(
        f"<path d='M{left} {y.at(time)}H{right}' stroke='currentColor' stroke-opacity='{0.15 if time else 0.6}'/>"
        f"<text x='{left - 6}' y='{y.at(time)}' dy='4' text-anchor='end' {_LABEL}>"
        f"{f'{time:+.0f} %' if time else 'plain'}</text>"
        for time in y.ticks(10.0**power * digit for power in range(9) for digit in (1, 2, 5))
    )


def _circle(dot: Dot, x: _Axis, y: _Axis) -> str:
    return (
        f"<circle cx='{x.at(dot.budget)}' cy='{y.at(dot.percent)}' r='5' "
        f"fill='{_BLUE if dot.filled else _PALE}' stroke='{_BLUE}'><title>{escape(dot.title)}</title></circle>"
    )
