"""Time lost while the allocator waits for memory before it gives up."""

from collections.abc import Iterator
from statistics import median

from memfit.observe.causes.series import last_at
from memfit.observe.events import Finding
from memfit.observe.record import Record
from memfit.units import format_size

# A request that fails is tried again for ten seconds (bfc_allocator.cc, kMaxMillisToWait).
_WAIT = 10.0
_OFF = 1.5
_NEAR = 0.93


def find(record: Record) -> Iterator[Finding]:
    """Steps longer by tens of seconds where memory is nearly full, and the waits before an out-of-memory."""
    usual = {phase: _usual(record, phase) for phase in ("train", "validation", "predict")}
    slow = _slow_steps(record, usual)
    failed = _before_failures(record, usual)
    lost = sum(slow) + sum(failed)
    if not lost:
        return
    limit = record.run.limit_bytes
    where = [f"{len(slow)} steps were slower by some ten seconds near the limit"] if slow else []
    where += [f"{len(failed)} requests failed after ten seconds and more"] if failed else []
    of_limit = f" The limit is {format_size(limit)}." if limit else ""
    yield Finding(
        at=last_at(record),
        id="allocator-retries",
        title=f"{lost:.0f} s were lost waiting for memory",
        evidence=f"{'; '.join(where)}. A usual training step takes {usual['train']:.3g} s.{of_limit}",
        cause="When memory is full the allocator waits up to ten seconds for something to be freed before it fails.",
        fix='plan = memfit.plan(model, batch_size, budget="...")   # a plan that keeps clear of the limit',
        severity="warning",
    )


def _usual(record: Record, phase: str) -> float:
    times = [line.seconds for line in record.steps if line.phase == phase and line.seconds is not None]
    return median(times) if times else 0.0


def _slow_steps(record: Record, usual: dict[str, float]) -> list[float]:
    limit = record.run.limit_bytes
    # A step that is traced and compiled takes its time too.
    traced = {(line.phase, line.step) for line in record.retraces}
    found = []
    for line in record.steps:
        numbers = range(line.first, line.first + line.count)
        compiled = any(number == 1 or (line.phase, number) in traced for number in numbers)
        if compiled or not limit or line.slowest_seconds is None or (line.peak_bytes or 0) < _NEAR * limit:
            continue
        extra = line.slowest_seconds - usual[line.phase]
        waits = round(extra / _WAIT)
        if waits and abs(extra - waits * _WAIT) <= _OFF * min(waits, 2) and extra > 5 * usual[line.phase]:
            found.append(extra)
    return found


def _before_failures(record: Record, usual: dict[str, float]) -> list[float]:
    found = []
    for failure in record.out_of_memory:
        before = [line.at for line in record.steps if line.at <= failure.at]
        recovered = [line.at for line in record.recoveries if line.at <= failure.at]
        if not before or failure.step == 1:
            continue
        waited = failure.at - max([*before, *recovered]) - usual.get(failure.phase, 0.0)
        if waited >= _WAIT - _OFF:
            found.append(waited)
    return found
