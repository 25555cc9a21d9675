"""Memory that is free but in pieces too small to be of use."""

from collections.abc import Iterator

from memfit.observe.causes.series import last_at, steady_peak
from memfit.observe.events import Finding, Fragmentation
from memfit.observe.record import Record
from memfit.units import MIB, format_size

# Holes matter where there is little else left.
_TIGHT = 0.9
_LEAST_SHARE, _LEAST = 0.05, 64 * MIB
_SCATTERED = 0.5


def find(record: Record) -> Iterator[Finding]:
    """A request that failed although enough was free, or holes in a device that is nearly full."""
    failed = _failed_request(record)
    if failed is not None:
        asked, free, largest = failed
        piece = f", the largest piece {format_size(largest)}" if largest is not None else ", not in one piece"
        yield _finding(
            record,
            f"{format_size(asked)} were refused while {format_size(free)} were free",
            f"Memory ran out at a request of {format_size(asked)} although {format_size(free)} were free{piece}.",
            "problem",
        )
        return
    limit, peak = record.run.limit_bytes, steady_peak(record.steps)
    worst = max(record.fragmentation, key=_unusable, default=None)
    if worst is None or not limit or peak is None or peak < _TIGHT * limit:
        return
    if (
        worst.free_bytes >= max(_LEAST, _LEAST_SHARE * limit)
        and worst.largest_free_bytes < _SCATTERED * worst.free_bytes
    ):
        yield _finding(
            record,
            f"{format_size(worst.free_bytes)} are free, the largest piece is {format_size(worst.largest_free_bytes)}",
            f"{format_size(_unusable(worst))} of free memory are in smaller pieces, while the peak takes "
            f"{100 * peak / limit:.0f} % of {format_size(limit)}.",
            "warning",
        )


def _unusable(line: Fragmentation) -> int:
    return line.free_bytes - line.largest_free_bytes


def _failed_request(record: Record) -> tuple[int, int, int | None] | None:
    """What was asked for, what was free in all, and the largest piece where it is known."""
    limit = record.run.limit_bytes
    for failure in record.out_of_memory:
        if failure.asked_bytes is None:
            continue
        near = [line for line in record.fragmentation if abs(line.at - failure.at) < 1]
        for line in near:
            if line.largest_free_bytes < failure.asked_bytes <= line.free_bytes:
                return failure.asked_bytes, line.free_bytes, line.largest_free_bytes
        # What is in use after the error says nothing: the step's tensors are gone by then.
        if near or not limit or failure.in_use_bytes is None or not failure.in_use_bytes > 0.5 * limit:
            continue
        if limit - failure.in_use_bytes >= failure.asked_bytes:
            return failure.asked_bytes, limit - failure.in_use_bytes, None
    return None


def _finding(record: Record, title: str, evidence: str, severity: str) -> Finding:
    return Finding(
        at=last_at(record),
        id="fragmentation",
        title=title,
        evidence=evidence,
        cause="Tensors of many sizes leave holes that no later one fits into"
        + ("; under memory growth the pool is made of regions that never join." if record.run.growth else "."),
        fix=_fix(record),
        severity="problem" if severity == "problem" else "warning",
    )


def _fix(record: Record) -> str:
    same = "dataset = dataset.batch(batch_size, drop_remainder=True)   # batches of one size leave fewer holes"
    if not (record.run.device or "").startswith("GPU"):
        return same
    if record.run.growth:
        return 'memfit.devices.configure(limit="...")   # one region from the start, instead of growth'
    # The driver's allocator keeps to no limit.
    return same if record.run.limit_bytes else 'memfit.devices.configure(allocator="cuda_malloc_async")'
