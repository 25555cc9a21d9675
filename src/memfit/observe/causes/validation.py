"""Validation that takes more memory than training."""

from collections.abc import Iterator

from memfit.observe.causes.series import after_warm_up, last_at, of_phase, steady_peak
from memfit.observe.events import Finding, Severity
from memfit.observe.record import Record
from memfit.units import MIB, format_size

_FACTOR, _LEAST = 1.1, 32 * MIB
_LEAST_STEPS = 5
_TIGHT = 0.9


def find(record: Record) -> Iterator[Finding]:
    """Only validation inside of `fit`: an evaluation of its own may have any batch size."""
    training = steady_peak(after_warm_up(record))
    # Not its first step, in which kernels are tuned.
    validating = [line for line in of_phase(record, "validation") if line.epoch is not None and line.first > 1]
    validation = steady_peak(validating)
    if training is None or validation is None or len(after_warm_up(record)) < _LEAST_STEPS:
        return
    if validation < _FACTOR * training or validation - training < _LEAST:
        return
    limit = record.run.limit_bytes
    severity: Severity = "warning" if limit and validation > _TIGHT * limit else "note"
    batch = next((model.batch_size for model in record.models if model.batch_size), None)
    size = str(max(1, int(batch * training / validation))) if batch else "..."
    yield Finding(
        at=last_at(record),
        id="validation-above-training",
        title=f"Validation takes {format_size(validation - training)} more than training",
        evidence=f"A validation step peaked at {format_size(validation)}, a training step at {format_size(training)}.",
        cause="Validation has larger batches or inputs than training, or its data lies on the device as a whole.",
        fix=f"model.fit(..., validation_batch_size={size})   # for data sets: validation.batch({size})",
        severity=severity,
    )
