"""Host memory that fills up during the first pass over the data and stays full."""

from collections.abc import Iterator

from memfit.observe.causes.series import after_warm_up, last_at, of_phase
from memfit.observe.events import Finding, Severity
from memfit.observe.record import Record
from memfit.units import GIB, format_size

_LEAST, _LEAST_SHARE, _MUCH = GIB, 0.25, 0.5
_LEAST_LINES = 8
# How much of the growth may come after the first pass.
_AFTERWARDS = 0.1


def find(record: Record) -> Iterator[Finding]:
    """A cache in memory, or a large shuffle buffer; only where it takes much of what there is."""
    total = record.run.host_memory_bytes
    later = [line.host_bytes for line in after_warm_up(record, first_epoch=False) if line.host_bytes is not None]
    first = [line.host_bytes for line in of_phase(record, "train") if line.host_bytes is not None]
    first = first[: len(first) - len(later)]
    if not total or len(first) < _LEAST_LINES or len(later) < _LEAST_LINES:
        return
    grown, afterwards = first[-1] - first[0], max(later) - first[-1]
    if grown < max(_LEAST, _LEAST_SHARE * total) or afterwards > _AFTERWARDS * grown:
        return
    severity: Severity = "warning" if grown > _MUCH * total else "note"
    yield Finding(
        at=last_at(record),
        id="dataset-cache-in-ram",
        title=f"{format_size(grown)} of host memory filled up during the first epoch",
        evidence=f"Host memory rose from {format_size(first[0])} to {format_size(first[-1])} in the first pass over "
        f"the data and stayed there; the machine has {format_size(total)}.",
        cause="Dataset.cache() without a file name keeps everything in host memory, as a large shuffle buffer does.",
        fix='dataset = dataset.cache("train.cache")   # on disk; cache before decoding or augmenting, not after',
        severity=severity,
    )
