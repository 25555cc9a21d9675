"""Memory growth that keeps what the first step took to choose its kernels."""

from collections.abc import Iterator

from memfit.observe.causes.series import WARM_UP_STEPS, after_warm_up, last_at, of_phase, steady_peak
from memfit.observe.events import Finding
from memfit.observe.record import Record
from memfit.units import MIB, format_size

_LEAST_STEPS = 5
# A U-Net took 6.3 times its steady peak while it was tuned (an H200, XLA); without convolutions it is 1.0.
_FACTOR, _LEAST = 1.5, 256 * MIB
_HEADROOM = 1.1


def find(record: Record) -> Iterator[Finding]:
    """Only under growth: a limit bounds what tuning may take."""
    steady = after_warm_up(record)
    first = steady_peak([line for line in of_phase(record, "train") if line.first <= WARM_UP_STEPS])
    later = steady_peak(steady)
    if not record.run.growth or first is None or later is None or len(steady) < _LEAST_STEPS:
        return
    if first < _FACTOR * later or first - later < _LEAST:
        return
    limit = -(-int(later * _HEADROOM) // (64 * MIB)) * 64
    yield Finding(
        at=last_at(record),
        id="growth-keeps-autotuning",
        title=f"Memory growth keeps {format_size(first - later)} that only the first steps used",
        evidence=f"The first {WARM_UP_STEPS} steps peaked at {format_size(first)}, all others at {format_size(later)}; "
        "under memory growth the difference is never given back.",
        cause="The first step tries convolution kernels with large scratch memory, and growth lets it have that.",
        fix=f'memfit.devices.configure(limit="{limit}MiB")   # instead of memory growth',
        severity="warning",
    )
