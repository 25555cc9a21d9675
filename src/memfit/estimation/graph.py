"""The graph regime: the executor's step on TensorFlow's allocator."""

from dataclasses import dataclass

from memfit.estimation.lifetimes import Program, lifetimes
from memfit.estimation.replay import Replay, replay
from memfit.estimation.workspace import Workspace, autotuning_workspace, cpu_workspace, steady_workspace
from memfit.hardware.catalog import GPU
from memfit.trace.step import Step

NO_LIMIT = 2**50
"""More memory than any device has."""

# Replays differ in the order of dispatch (a seed; `None` is the plain order) and in whether the driver hands out
# regions at descending addresses. A GPU's runs differ in both; a CPU has one region, and its order differs more.
_Variant = tuple[int | None, bool]
_ON_GPU: tuple[_Variant, ...] = ((None, False), (None, True), (0, False), (0, True))
_ON_CPU: tuple[_Variant, ...] = tuple((seed, False) for seed in (None, 0, 1, 2, 3, 4))


@dataclass(frozen=True)
class GraphPrediction:
    """A step at a batch size, replayed."""

    replay: Replay
    """The middle one of several."""
    program: Program
    """The program that reached its peak."""
    step: Step
    """The step it belongs to: the one traced, or its other outcome."""
    steady_peaks: tuple[int, ...]
    """The steady peaks of all replays, lowest first."""


class GraphModel:
    """Replays a step at any batch size.

    Args:
        step: The traced step.
        gpu: The target; `None` is the CPU.
    """

    def __init__(self, step: Step, gpu: GPU | None) -> None:
        self.step = step
        capability = gpu.compute_capability if gpu else None
        self._steady: Workspace = steady_workspace(capability) if gpu else cpu_workspace
        self._autotuning: Workspace = autotuning_workspace(capability) if gpu else cpu_workspace
        self._programs_of: int | None = None
        self._kept: dict[int | None, tuple[list[Program], Program]] = {}

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
        runs = []
        on_gpu = self.step.device == "GPU"
        variants = _ON_GPU if on_gpu else _ON_CPU
        for seed, descending in variants if band else variants[:1]:
            programs, first = self._programs(batch, seed)
            result = replay(
                self.step,
                programs,
                first,
                limit=limit,
                growth=growth and on_gpu,
                resident=resident,
                descending=descending,
            )
            runs.append((result, programs))
        plain = runs[0]
        runs.sort(key=lambda run: run[0].steady_peak)
        if self.step.has_loops:
            result, programs = runs[-1]  # a backward loop runs ahead of the sums of its weights' gradients
        elif on_gpu:
            # The middle one; of two middle ones the upper, because a peak is the most of many steps.
            result, programs = runs[len(runs) // 2]
        else:
            result, programs = plain  # a CPU's other orders are rare, and far from it
        at = result.peak_program
        peaks = tuple(run.steady_peak for run, _ in runs)
        return GraphPrediction(result, programs[at], self._outcomes()[at], peaks)

    def _programs(self, batch: int, seed: int | None) -> tuple[list[Program], Program]:
        """The steady programs and the first one, kept for the batch size asked for last."""
        if self._programs_of != batch:
            self._kept, self._programs_of = {}, batch
        if seed not in self._kept:
            steady = [lifetimes(step, batch, workspace=self._steady, seed=seed) for step in self._outcomes()]
            first = lifetimes(self.step, batch, workspace=self._autotuning, first=True, seed=seed)
            self._kept[seed] = (steady, first)
        return self._kept[seed]

    def _outcomes(self) -> list[Step]:
        return [self.step, self.step.otherwise] if self.step.otherwise else [self.step]
