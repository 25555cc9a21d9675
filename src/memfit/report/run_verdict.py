"""How a run ended and whether memory was the reason, in one sentence."""

from typing import TYPE_CHECKING, Any

from memfit.report.run_words import seconds_words, share_words, times_words
from memfit.units import format_size

if TYPE_CHECKING:
    from memfit.observe.record import Record, Steps

# From here on a batch with one more sample, or fragmentation, is enough to fail.
_TIGHT = 0.95


def verdict(record: "Record") -> dict[str, Any]:
    """The headline: the highest peak against the limit, and the verdict in words.

    Returns:
        `state` is one of "fits", "tight", "recovered", "out-of-memory", "failed", "interrupted", "died" and "unknown".
    """
    highest = highest_step(record)
    # Zero is what a CPU without a limit reports: nobody counted.
    peak = None if highest is None else highest.peak_bytes or None
    limit = record.run.limit_bytes
    share = peak / limit if peak is not None and limit else None
    state, words = _state(record, peak, limit, share)
    return {
        "state": state,
        "words": words,
        "peak_bytes": peak,
        "peak_phase": highest.phase if highest else None,
        "peak_epoch": highest.epoch if highest else None,
        "peak_step": highest.first if highest else None,
        "limit_bytes": limit,
        "share_of_limit": share,
        "free_bytes": limit - peak if peak is not None and limit else None,
    }


def highest_step(record: "Record") -> "Steps | None":
    """The first of the steps with the highest peak; `None` where no peak is known."""
    known = [line for line in record.steps if line.peak_bytes is not None]
    return max(known, key=lambda line: line.peak_bytes or 0) if known else None


def _state(record: "Record", peak: int | None, limit: int | None, share: float | None) -> tuple[str, str]:
    end = record.end
    if record.out_of_memory and _lost(record):
        return "out-of-memory", _ran_out(record)
    if end is None:
        ended = "The process ended without closing its record: it was killed, or crashed."
        return "died", f"{ended}{_earlier(record)} {_peak_words(peak, limit)}"
    if end.outcome == "interrupted":
        return "interrupted", f"Interrupted.{_earlier(record)} {_peak_words(peak, limit)}"
    if end.outcome != "finished":
        why = f": {end.error.rstrip('.')}" if end.error else f" with exit code {end.exit_code}"
        # Only an error that is known, in a run that never ran out of memory, acquits memory.
        acquitted = " Memory was not the reason." if end.error and not _memory_was_short(record) else ""
        return "failed", f"Failed{why}.{acquitted}{_earlier(record)} {_peak_words(peak, limit)}"
    if record.out_of_memory or record.recoveries:
        return "recovered", _recovered(record)
    if peak is None:
        return "unknown", "Finished. The peak is unknown: the device gave no memory statistics."
    if share is None:
        return "fits", f"Finished. {_peak_words(peak, limit)}"
    if share >= _TIGHT:
        return "tight", f"Finished, with only {format_size((limit or 0) - peak)} to spare."
    return "fits", f"Finished, with {format_size((limit or 0) - peak)} to spare: {share_words(1 - share)} of the limit."


def _lost(record: "Record") -> bool:
    """Whether the last out-of-memory was the end of the run: nothing recovered from it, and no step followed."""
    if record.end is not None and record.end.outcome == "finished":
        return False
    last = max(line.at for line in record.out_of_memory)
    recovered = any(line.at >= last for line in record.recoveries)
    continued = any(line.at > last and line.phase == "train" for line in record.steps)
    return not recovered and not continued


def _memory_was_short(record: "Record") -> bool:
    return bool(record.out_of_memory or record.recoveries)


def _earlier(record: "Record") -> str:
    """Where the run was short of memory before it ended for another reason, or for one that is not known."""
    if not record.out_of_memory:
        return " It was restarted before, when the process died." if record.recoveries else ""
    return f" It ran out of memory {times_words(len(record.out_of_memory))} before and continued."


def _ran_out(record: "Record") -> str:
    last = max(record.out_of_memory, key=lambda line: line.at)
    where = f"{last.phase} step {last.step}" if last.step is not None else last.phase
    asked = f" {last.layer or last.op} asked for {format_size(last.asked_bytes)}" if last.layer or last.op else ""
    held = f" while {format_size(last.in_use_bytes)} were in use" if asked and last.in_use_bytes is not None else ""
    return f"Ran out of memory in {where}.{asked}{held}{'.' if asked else ''}"


def _recovered(record: "Record") -> str:
    cost = [line.seconds for line in record.recoveries if line.seconds is not None]
    price = f", at a cost of {seconds_words(sum(cost))}" if cost else ""
    restarts = sum(bool(line.restart) for line in record.recoveries)
    happened = []
    if record.out_of_memory:
        happened.append(f"ran out of memory {times_words(len(record.out_of_memory))} and recovered")
    if restarts:
        happened.append(f"was restarted {times_words(restarts)}")
    return f"Finished. It {', and '.join(happened)}{price}."


def _peak_words(peak: int | None, limit: int | None) -> str:
    if peak is None:
        return "The peak is unknown."
    of_limit = f" of {format_size(limit)}" if limit else ", with no limit known"
    return f"The peak was {format_size(peak)}{of_limit}."
