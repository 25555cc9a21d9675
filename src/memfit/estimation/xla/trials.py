"""What XLA takes while it times the kernels that cuDNN offers, before the first step runs."""

from collections.abc import Iterable

from memfit.estimation.xla.convolution import Convolution
from memfit.estimation.xla.workspace import Offered
from memfit.hardware import scratch
from memfit.hardware.transforms import fourier_engine
from memfit.units import MIB

# Operands lie between red zones of 8 MiB a side (redzone_allocator.h).
_RED_ZONES = 2 * 16 * MIB


def trial_bytes(convolutions: Iterable[Convolution], offered: Offered) -> int | None:
    """The most that timing one convolution takes: operands, result and workspace; XLA heeds no cap.

    Returns:
        `None` where there are convolutions that cuDNN could not be asked for.
    """
    most: int | None = 0
    for convolution in convolutions:
        kernels = offered.get(convolution.problem)
        if kernels is None:
            most = most or None
            continue
        left_out = fourier_engine(convolution.problem) if scratch.leaves_fft_kernels_out() else None
        workspace = max((kernel.workspace for kernel in kernels if kernel.engine != left_out), default=0)
        operands = convolution.image.size + convolution.filter.size + convolution.output.size
        most = max(most or 0, operands + workspace + _RED_ZONES)
    return most
