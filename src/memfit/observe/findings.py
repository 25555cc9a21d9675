"""What a record shows to be worth changing, with evidence, cause and the line to change. Needs no TensorFlow."""

from collections.abc import Callable, Iterator

from memfit.observe.causes import (
    autotuning,
    fragmentation,
    host_cache,
    leak,
    predictions,
    retracing,
    retries,
    validation,
)
from memfit.observe.events import Finding
from memfit.observe.record import Record

_CAUSES: tuple[Callable[[Record], Iterator[Finding]], ...] = (
    leak.find,
    fragmentation.find,
    retries.find,
    autotuning.find,
    predictions.find,
    validation.find,
    retracing.find,
    host_cache.find,
)
_ORDER = {"problem": 0, "warning": 1, "note": 2}


def findings(record: Record) -> tuple[Finding, ...]:
    """Find out what of a run is worth changing.

    Args:
        record: The record, as `read_record` gives it.

    Returns:
        The findings, worst first. What was found while the run was alive is in `record.findings`; an id that is there
        is not found again.

    Example:
        ```python
        for finding in findings(read_record(latest_record())):
            print(finding.title, finding.fix)
        ```
    """
    known = {finding.id for finding in record.findings}
    found = [finding for find in _CAUSES for finding in find(record) if finding.id not in known]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))
