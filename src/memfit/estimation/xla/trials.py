"""What XLA takes while it times the kernels that cuDNN offers, before the first step runs."""

from collections.abc import Iterable

from memfit.estimation.xla.convolution import Convolution
from memfit.estimation.xla.workspace import Offered
from memfit.hardware import scratch
from memfit.hardware.transforms import fourier_engine, kernels_left_out
from memfit.units import MIB

# Operands lie between red zones of 8 MiB a side (redzone_allocator.h).
_RED_ZONES = 2 * 16 * MIB


def trial_bytes(convolutions: Iterable[Convolution], offered: Offered) -> int:
    """The most that timing one convolution takes: operands, result and workspace; XLA heeds no cap.

    Where cuDNN could not be asked, the kernels that transform images count: as a rule they take most.
    """
    most = 0
    for convolution in convolutions:
        problem = convolution.problem
        kernels = [(kernel.engine, kernel.workspace) for kernel in offered.get(problem, ())]
        left_out = fourier_engine(problem) if scratch.leaves_fft_kernels_out() else None
        sizes = [size for engine, size in kernels or kernels_left_out(problem) if engine != left_out]
        operands = convolution.image.size + convolution.filter.size + convolution.output.size
        most = max(most, operands + max(sizes, default=0) + _RED_ZONES)
    return most
