"""What the first step tries out in the graph regime: every kernel that cuDNN offers for each convolution."""

from collections.abc import Iterator, Mapping

from memfit.estimation.workspace import (
    DEPTHWISE,
    Convolution,
    FirstWorkspace,
    Trial,
    Workspace,
    autotuning_workspace,
    convolution,
    trial,
)
from memfit.estimation.xla.card import is_here
from memfit.hardware import scratch
from memfit.hardware.catalog import GPU
from memfit.hardware.cudnn import Kernel, Problem, kernels
from memfit.hardware.transforms import fourier_engine, winograd_gradient
from memfit.trace.step import Step

# TensorFlow gives depthwise convolutions to cuDNN in half precision, with these windows (depthwise_conv_op.cc).
_DEPTHWISE_TYPES, _DEPTHWISE_WINDOWS = ("f16", "bf16"), ((1, 1), (3, 3), (5, 5), (7, 7))


class Trials:
    """The kernels that TensorFlow times in the first step on a card.

    Args:
        gpu: The card.
        steady: What operations take whose kernel is known.
    """

    def __init__(self, gpu: GPU, steady: Workspace) -> None:
        self._gpu, self._steady = gpu, steady
        self._limit = scratch.cap()
        self._otherwise = autotuning_workspace(gpu.compute_capability)
        self._asked: tuple[int, Mapping[Problem, tuple[Kernel, ...]]] | None = None

    def of_one_run(self) -> FirstWorkspace:
        """What each operation takes, asked in the order of a run: the same convolution is timed once."""
        timed: set[Problem] = set()

        def workspace(step: Step, index: int, batch: int) -> Trial | int:
            conv = _on_cudnn(step, index, batch)
            if conv is None or conv.problem is None:
                return self._otherwise(step, index, batch)
            chosen = self._steady(step, index, batch)
            if conv.problem in timed:
                return chosen
            timed.add(conv.problem)
            offered = self._kernels(step, batch).get(conv.problem)
            if not offered:
                return self._otherwise(step, index, batch)
            left_out = fourier_engine(conv.problem) if scratch.leaves_fft_kernels_out() else None
            sizes = [kernel.workspace for kernel in offered if kernel.engine != left_out]
            return trial(conv, [size for size in sizes if size <= self._limit], chosen)

        return workspace

    def most_beyond_steady(self, step: Step, batch: int) -> int:
        """The most that a filter gradient takes beyond what is likely, should Winograd's kernel be the fastest."""
        beyond = 0
        for index in range(len(step.ops)):
            conv = _on_cudnn(step, index, batch)
            if conv and conv.problem and (size := winograd_gradient(conv.problem)) <= self._limit:
                beyond = max(beyond, size - self._steady(step, index, batch))
        return beyond

    def are_known(self, step: Step, batch: int) -> bool:
        """Whether cuDNN said what is tried, or there is nothing to try."""
        return self._kernels(step, batch) != {} or not any(_problems(step, batch))

    def _kernels(self, step: Step, batch: int) -> Mapping[Problem, tuple[Kernel, ...]]:
        """What cuDNN offers at the batch size asked for first: asking takes a second, and a search asks for many."""
        if self._asked is None:
            problems = list(_problems(step, batch))
            self._asked = batch, kernels(problems, self._gpu, on_card=is_here(self._gpu)) if problems else {}
        return self._asked[1] if self._asked[0] == batch else {}


def _problems(step: Step, batch: int) -> Iterator[Problem]:
    for index in range(len(step.ops)):
        conv = _on_cudnn(step, index, batch)
        if conv and conv.problem:
            yield conv.problem


def _on_cudnn(step: Step, index: int, batch: int) -> Convolution | None:
    """A convolution whose kernels are timed."""
    conv = convolution(step, index, batch)
    if conv is not None:
        return None if conv.is_matrix_product else conv
    conv = convolution(step, index, batch, types=(DEPTHWISE,))
    if conv is None or conv.problem is None:
        return None
    fits = conv.problem.dtype in _DEPTHWISE_TYPES and conv.problem.filter[2:] in _DEPTHWISE_WINDOWS
    return conv if fits and conv.problem.filter[0] == conv.problem.image[1] else None
