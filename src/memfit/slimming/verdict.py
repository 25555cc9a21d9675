"""What a change of a model was worth, in words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memfit.units import format_size

if TYPE_CHECKING:
    from memfit.slimming.compare import ModelFacts

# Less than this is no change: predicted peaks of two like models come within it.
_NOTHING = 0.02
_WHY_MORE_MEMORY = (
    "activations, not parameters, fill the memory, "
    "and a layer that is split in two, as a separable convolution is, keeps one more of them"
)


@dataclass(frozen=True)
class Verdict:
    """Sentences for both sides."""

    gained: tuple[str, ...]
    not_gained: tuple[str, ...]


def verdict(first: "ModelFacts", second: "ModelFacts") -> Verdict:
    """What the second model gains over the first, and what it does not."""
    gained: list[str] = []
    not_gained: list[str] = []
    for better, sentence in (*_sizes(first, second), *_measured(first, second), *_accuracy(first, second)):
        (gained if better else not_gained).append(sentence)
    return Verdict(tuple(gained), tuple(not_gained))


def _sizes(first: "ModelFacts", second: "ModelFacts") -> Iterator[tuple[bool, str]]:
    yield _line(
        "the number of parameters",
        first.parameters,
        second.parameters,
        f"{first.parameters:,} to {second.parameters:,}",
    )
    yield _line("the saved file", first.file_bytes, second.file_bytes, _bytes(first.file_bytes, second.file_bytes))
    yield _line("work per sample", first.forward_flops, second.forward_flops, "multiplications and additions")
    better, sentence = _peak("the peak of training", first.train_peak.value, second.train_peak.value, "predicted")
    if second.train_peak.value > first.train_peak.value and second.parameters < first.parameters:
        sentence = f"{sentence[:-1]}: {_WHY_MORE_MEMORY}."
    yield better, sentence
    if first.predict_peak and second.predict_peak:
        yield _peak("the peak of predict", first.predict_peak.value, second.predict_peak.value, "predicted")
    times = f"{first.step_seconds * 1000:.1f} to {second.step_seconds * 1000:.1f} ms, predicted"
    yield _line("the time of a training step", first.step_seconds, second.step_seconds, times)


def _measured(first: "ModelFacts", second: "ModelFacts") -> Iterator[tuple[bool, str]]:
    one, other = first.measured, second.measured
    if one is None or other is None:
        return
    for name in ("steady_peak", "predict_peak"):
        before, after = getattr(one, name), getattr(other, name)
        if before and after:
            what = "training" if name == "steady_peak" else "predict"
            yield _peak(f"the measured peak of {what}", before, after, f"on {one.device}")
    if one.step_seconds and other.step_seconds:
        times = f"{one.step_seconds * 1000:.1f} to {other.step_seconds * 1000:.1f} ms on {one.device}"
        yield _line("the measured time of a step", one.step_seconds, other.step_seconds, times)


def _accuracy(first: "ModelFacts", second: "ModelFacts") -> Iterator[tuple[bool, str]]:
    if first.accuracy is None or second.accuracy is None:
        return
    points = 100 * (second.accuracy - first.accuracy)
    text = f"accuracy {'rises' if points > 0 else 'falls'} by {abs(points):.1f} points" if points else "accuracy stays"
    yield points >= 0, f"{text} ({first.accuracy:.1%} to {second.accuracy:.1%})."


def _peak(what: str, before: int, after: int, how: str) -> tuple[bool, str]:
    return _line(what, before, after, f"{_bytes(before, after)}, {how}")


def _bytes(before: int, after: int) -> str:
    return f"{format_size(before)} to {format_size(after)}"


def _line(what: str, before: float, after: float, detail: str) -> tuple[bool, str]:
    """Whether a number went down, and the sentence about it."""
    change = after / before - 1 if before else 0.0
    if abs(change) < _NOTHING:
        return False, f"{what} stays about the same ({detail})."
    return change < 0, f"{what} {'falls' if change < 0 else 'rises'} by {abs(change):.0%} ({detail})."
