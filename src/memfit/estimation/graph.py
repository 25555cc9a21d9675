"""The graph regime: the executor's step on TensorFlow's allocator."""

from dataclasses import dataclass

from memfit.estimation.lifetimes import Program, lifetimes
from memfit.estimation.replay import Replay, replay
from memfit.estimation.workspace import DEFAULT_LIMIT, Workspace, autotuning_workspace, steady_workspace
from memfit.hardware.catalog import GPU
from memfit.trace.step import Step

# Orders of dispatch the band is drawn from, besides the plain one.
_PERTURBED_ORDERS = (0, 1)


@dataclass(frozen=True)
class GraphPrediction:
    """A step at a batch size, replayed."""

    replay: Replay
    program: Program
    """The program that reached the peak."""
    step: Step
    """The step it belongs to: the one traced, or its other outcome."""
    steady_peaks: tuple[int, ...]
    """Steady peaks under perturbed orders, the plain order first."""


class GraphModel:
    """Replays a step at any batch size.

    Args:
        step: The traced step.
        gpu: The target; `None` is the CPU.
        workspace_limit: The cuDNN workspace cap.
    """

    def __init__(self, step: Step, gpu: GPU | None, *, workspace_limit: int = DEFAULT_LIMIT) -> None:
        self.step = step
        capability = gpu.compute_capability if gpu else None
        self._steady: Workspace = steady_workspace(capability, workspace_limit) if gpu else _no_workspace
        self._autotuning: Workspace = autotuning_workspace(capability, workspace_limit) if gpu else _no_workspace

    def predict(self, batch: int, *, limit: int, growth: bool, resident: int = 0, band: bool = True) -> GraphPrediction:
        """Replay the step.

        Args:
            batch: The batch size.
            limit: The most the allocator may take.
            growth: Whether it grows on demand or takes the limit at once.
            resident: Bytes of data that lie on the device all the time.
            band: Also replay perturbed orders.

        Raises:
            OutOfMemory: If it does not fit.
        """
        seeds: tuple[int | None, ...] = (None, *_PERTURBED_ORDERS) if band else (None,)
        peaks = []
        plain: tuple[Replay, list[Program]] | None = None
        for seed in seeds:
            programs = [lifetimes(step, batch, workspace=self._steady, seed=seed) for step in self._outcomes()]
            first = lifetimes(self.step, batch, workspace=self._autotuning, first=True, seed=seed)
            result = replay(self.step, programs, first, limit=limit, growth=growth, resident=resident)
            peaks.append(result.steady_peak)
            plain = plain or (result, programs)
        result, programs = plain or (result, programs)
        return GraphPrediction(
            result, programs[result.peak_program], self._outcomes()[result.peak_program], tuple(peaks)
        )

    def _outcomes(self) -> list[Step]:
        return [self.step, self.step.otherwise] if self.step.otherwise else [self.step]


def _no_workspace(_step: Step, _index: int, _batch: int) -> int:
    return 0
