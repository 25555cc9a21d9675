"""Which cache, how much prefetching and how much parallelism a RAM budget allows: pure arithmetic on measured facts.

The room is shared in two steps. Batches on their way get what lets every core work, up to most of a small budget, as a
core that waits costs more than a small cache saves; the rest is for caches. So a larger budget never means a smaller
cache. Of the caches that fit, those that save most are taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from memfit.data.facts import Cache, Decision, Layout, Measured, Split
from memfit.errors import BudgetTooSmallError
from memfit.units import MIB, format_size

# What TensorFlow's threads, functions and allocator grew by in `benchmarks/pipelines.py` beside what is counted here.
OVERHEAD = 64 * MIB
# Measured on 16 cores: 2 batches at a time were 0.85 times as fast as 4, and 8 were 1.05 times.
_CORES_TO_A_BATCH = 4
# The share of a small budget that batches on their way may take.
_WORKING_SHARE = 0.85
# The sample's average may be below that of all files; a store of encoded files also stops by itself when it is full.
_ENCODED_MARGIN = 1.1


@dataclass(frozen=True)
class _Pace:
    """How much is done at once."""

    parallel_batches: int
    prefetch: int
    parallel_decodes: int


def decide(
    measured: Measured,
    splits: Sequence[Split],
    ram_budget: int,
    *,
    cores: int,
    disk: bool = False,
    overhead: int = OVERHEAD,
) -> Layout:
    """Choose caches, prefetching and parallelism for every split.

    Args:
        measured: What a sample of the files told.
        splits: The parts of the data; earlier ones are cached first.
        ram_budget: The host memory all of it may take.
        cores: How many processors there are.
        disk: Whether a cache on disk may be made.
        overhead: What is taken beside batches and caches.

    Raises:
        BudgetTooSmallError: If the budget does not hold one batch on its way.
    """
    paces = list(_paces(cores))
    least, most = _working(measured, splits, paces[-1]), _working(measured, splits, paces[0])
    if overhead + least > ram_budget:
        _refuse(measured, splits, ram_budget, overhead + least)
    reserve = overhead + min(most, max(least, int(_WORKING_SHARE * ram_budget) - overhead))
    pace = next(each for each in paces if overhead + _working(measured, splits, each) <= reserve)
    decisions = _cached(measured, splits, ram_budget - reserve, pace, disk=disk)
    enough = overhead + most + sum(each.whole_decoded_bytes for each in decisions)
    return Layout(ram_budget, overhead, measured, decisions, enough)


def _paces(cores: int) -> Iterator[_Pace]:
    """From the fastest to the one that takes least."""
    # A batch begins and ends on one core: the more cores, the more batches it takes to keep all of them at work.
    # Two pictures for each core, as the next is to be there when one is done.
    batches = max(2, cores // _CORES_TO_A_BATCH)
    decodes = -(-2 * cores // batches)
    yield _Pace(batches, 2, decodes)
    while batches > 1:
        yield _Pace(batches, 1, decodes)
        # Rounded down: fewer batches never decode more pictures at once.
        decodes = batches * decodes // (batches // 2)
        batches //= 2
    while True:
        yield _Pace(1, 1, cores)
        if cores <= 1:
            return
        cores //= 2


def _batch_bytes(measured: Measured, split: Split) -> int:
    return measured.sample_bytes * min(split.batch_size, max(split.samples, 1))


def _working_bytes(measured: Measured, split: Split, pace: _Pace) -> int:
    # One that is being made is there as samples and, towards the end, as a batch; again when it is augmented. Others
    # wait, and one is used. In halves: what two batches in the making were measured to take.
    halves = pace.parallel_batches * (5 if split.augmented else 3) + 2 * pace.prefetch + 2
    # A picture is resized in float32, and rounded there.
    one_decode = measured.largest_bytes + 2 * 4 * measured.sample_bytes
    return halves * _batch_bytes(measured, split) // 2 + pace.parallel_batches * pace.parallel_decodes * one_decode


def _working(measured: Measured, splits: Sequence[Split], pace: _Pace) -> int:
    return sum(_working_bytes(measured, split, pace) for split in splits)


def _refuse(measured: Measured, splits: Sequence[Split], ram_budget: int, least: int) -> None:
    batch = max(_batch_bytes(measured, split) for split in splits)
    raise BudgetTooSmallError(
        f"ram_budget={format_size(ram_budget)} is less than the pipeline needs without any cache: "
        f"{format_size(least)}, for batches of {format_size(batch)} that are made, wait and are used. "
        "Raise the budget, or lower batch_size or image_size."
    )


def _cached(measured: Measured, splits: Sequence[Split], room: int, pace: _Pace, *, disk: bool) -> tuple[Decision, ...]:
    """Of all combinations of caches, the one that saves most; the first of equals, which has the simpler ones."""
    found: list[tuple[Decision, ...]] = []
    for caches in product(_candidates(disk), repeat=len(splits)):
        left, decisions = room, []
        for split, cache in zip(splits, caches, strict=True):
            decision = _decision(measured, split, left, pace, cache)
            if decision is None:
                break
            left -= decision.cache_bytes
            decisions.append(decision)
        else:
            found.append(tuple(decisions))
    # Microseconds apart is equal: sums of floats differ with their order.
    return max(found, key=lambda decisions: round(sum(each.saved_seconds for each in decisions), 6))


def _candidates(disk: bool) -> tuple[Cache, ...]:
    return ("decoded", "none", "encoded", "disk") if disk else ("decoded", "none", "encoded")


def _decision(measured: Measured, split: Split, room: int, pace: _Pace, cache: Cache) -> Decision | None:
    """What this cache would be in that room; `None` where it is none."""
    whole = split.samples * measured.sample_bytes
    cached = cache_bytes = disk_bytes = 0
    saved = 0.0
    if cache == "decoded":
        cached = min(split.samples, room // measured.sample_bytes)
        cache_bytes = cached * measured.sample_bytes
        saved = cached * (measured.read_seconds + measured.decode_seconds)
        if not cached:
            return None
    elif cache == "encoded":
        cached, cache_bytes = split.samples, int(split.samples * measured.encoded_bytes * _ENCODED_MARGIN)
        saved = cached * measured.read_seconds
        if cache_bytes > room or not cached:
            return None
    elif cache == "disk":
        cached, disk_bytes = split.samples, whole
        # Reading a sample back takes as long as reading that many bytes of files did.
        again = measured.read_seconds * measured.sample_bytes / max(measured.encoded_bytes, 1)
        saved = cached * (measured.read_seconds + measured.decode_seconds - again)
        if saved <= 0:
            return None
    return Decision(
        split=split,
        batch_bytes=_batch_bytes(measured, split),
        cache=cache,
        cached_samples=cached,
        cache_bytes=cache_bytes,
        disk_bytes=disk_bytes,
        working_bytes=_working_bytes(measured, split, pace),
        prefetch=pace.prefetch,
        parallel_batches=pace.parallel_batches,
        parallel_decodes=pace.parallel_decodes,
        saved_seconds=saved,
        whole_decoded_bytes=whole,
    )
