"""Memory that rises step after step once warm-up is over."""

from collections.abc import Iterator

from memfit.observe.causes.series import Rise, after_warm_up, in_use, last_at, of_phase, steady_rise
from memfit.observe.events import Finding
from memfit.observe.record import Record
from memfit.units import MIB, format_size

# The device's statistics are exact; the host's resident set goes up and down with the C library's arenas.
_LEAST_DEVICE = MIB
_LEAST_HOST, _LEAST_HOST_SHARE = 64 * MIB, 0.03
_FREQUENT_RETRACES = 3


def find(record: Record) -> Iterator[Finding]:
    """A leak on the device, and one in host memory."""
    on_gpu = (record.run.device or "").startswith("GPU")
    # The CPU's allocator also holds what data sets cache in their first pass.
    device = steady_rise(record, after_warm_up(record, first_epoch=on_gpu), in_use)
    if device is not None and device.bytes >= _LEAST_DEVICE:
        yield _finding(record, device, "device-memory-leak", "device memory")
        return
    host = steady_rise(record, after_warm_up(record, first_epoch=False), lambda line: line.host_bytes)
    if host is not None and host.bytes >= max(_LEAST_HOST, _LEAST_HOST_SHARE * host.first):
        yield _finding(record, host, "host-memory-leak", "host memory")


def _finding(record: Record, rise: Rise, identifier: str, what: str) -> Finding:
    cause, fix = _suspect(record)
    limit = record.run.limit_bytes if identifier == "device-memory-leak" else record.run.host_memory_bytes
    evidence = (
        f"After warm-up {what} between steps rose steadily from {format_size(rise.first)} to {format_size(rise.last)} "
        f"in {rise.steps} steps: {format_size(round(rise.per_step))} a step."
    )
    if limit and rise.per_step and limit > rise.last:
        evidence += (
            f" At this pace {format_size(limit)} are full after {(limit - rise.last) / rise.per_step:,.0f} more."
        )
    return Finding(
        at=last_at(record),
        id=identifier,
        title=f"{what[0].upper()}{what[1:]} grows by {format_size(round(rise.per_step))} with every step",
        evidence=evidence,
        cause=cause,
        fix=fix,
        severity="problem",
    )


def _suspect(record: Record) -> tuple[str, str]:
    """What else the record knows that explains it."""
    if max((line.count for line in record.retraces), default=0) >= _FREQUENT_RETRACES:
        return (
            "The step is traced again and again, and TensorFlow keeps every trace.",
            "See the finding on retracing; it is the same cause.",
        )
    if len(record.models) > _FREQUENT_RETRACES:
        return (
            f"{len(record.models)} models were used in one process, and TensorFlow keeps what it compiled for each.",
            "del model; keras.backend.clear_session()   # after each model; under XLA use one process per model",
        )
    if of_phase(record, "predict"):
        return (
            "Something keeps what each step or prediction returns.",
            "results.append(np.asarray(result))   # a copy in host memory instead of the tensor",
        )
    return (
        "Something keeps tensors of every step: a list, a history, an attribute of a callback.",
        "history.append(float(loss))   # the number instead of the tensor",
    )
