"""Predictions that pile up on the device until `predict` is over."""

from collections.abc import Iterator
from itertools import pairwise

from memfit.observe.causes.series import WARM_UP_STEPS, last_at, of_phase
from memfit.observe.events import Finding
from memfit.observe.record import Record, Steps
from memfit.units import MIB, format_size

_LEAST_STEPS = 8
_LEAST = 64 * MIB
_LEAST_SHARE = 0.1


def find(record: Record) -> Iterator[Finding]:
    """Keras keeps every batch's output on the device and joins them at the end."""
    passes = _passes(record)
    rise, steps = max((_rise(lines) for lines in passes), default=(0, 0))
    least = max(_LEAST, _LEAST_SHARE * (record.run.limit_bytes or 0))
    if rise < least:
        return
    yield Finding(
        at=last_at(record),
        id="predictions-pile-up",
        title=f"predict() holds {format_size(rise)} of results on the device",
        evidence=f"Memory in use rose with every one of {steps} steps of a prediction, by {format_size(rise // steps)} "
        "each, and joining the results takes as much again.",
        cause="model.predict keeps the output of every batch on the device until the last one is done.",
        fix="results = [model.predict_on_batch(batch) for batch in data]   # each result goes to the host at once",
        severity="warning",
    )


def _passes(record: Record) -> list[list[Steps]]:
    """The lines of each prediction."""
    ends = [epoch.at for epoch in record.epochs if epoch.phase == "predict"]
    parts: dict[int, list[Steps]] = {}
    for line in of_phase(record, "predict"):
        if line.first > WARM_UP_STEPS:
            parts.setdefault(sum(end < line.at for end in ends), []).append(line)
    return list(parts.values())


def _rise(lines: list[Steps]) -> tuple[int, int]:
    """By how much memory in use rose, and in how many steps; 0 where it did not all the time."""
    sizes = [line.in_use_bytes for line in lines if line.in_use_bytes is not None]
    steps = sum(line.count for line in lines)
    if len(sizes) < _LEAST_STEPS:
        return 0, 0
    rising = sum(after > before for before, after in pairwise(sizes))
    return (sizes[-1] - sizes[0], steps) if rising >= 0.9 * (len(sizes) - 1) else (0, 0)
