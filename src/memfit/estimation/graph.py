"""The graph regime: the executor's step on TensorFlow's allocator."""

from dataclasses import dataclass

from memfit.estimation.bfc import OutOfMemory
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
    """The one in the order that TensorFlow keeps unless threads interfere."""
    program: Program
    """The program that reached its peak."""
    step: Step
    """The step it belongs to: the one traced, or its other outcome."""
    steady_peaks: tuple[int, ...]
    """The steady peaks of all replays, lowest first; the limit for one that ran out of memory in another order."""


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
            OutOfMemory: If it does not fit in the order that TensorFlow keeps unless threads interfere.
        """
        on_gpu = self.step.device == "GPU"
        growth = growth and on_gpu
        runs: list[tuple[Replay, list[Program]]] = []
        peaks: list[int] = []
        out_of_memory = False
        for seed, descending in _ON_GPU if on_gpu else _ON_CPU:
            # Where everything is one region, there is no direction.
            if (seed is not None and not band) or (descending and not growth):
                continue
            programs, first = self._programs(batch, seed)
            try:
                result = replay(
                    self.step, programs, first, limit=limit, growth=growth, resident=resident, descending=descending
                )
            except OutOfMemory:
                if seed is None:
                    raise
                out_of_memory = True
            else:
                if seed is None or self.step.has_loops:
                    runs.append((result, programs))
                peaks.append(result.steady_peak)
        # Of the two ways to hand out regions the one that takes more, as a peak is the most of many steps; so does a
        # backward loop, which runs ahead of the sums of its weights' gradients.
        result, programs = max(runs, key=lambda run: run[0].steady_peak)
        at = result.peak_program
        peaks = sorted(peaks) + ([limit] if out_of_memory else [])
        return GraphPrediction(result, programs[at], self._outcomes()[at], tuple(peaks))

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
