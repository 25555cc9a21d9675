"""The graph regime: the executor's step on TensorFlow's allocator."""

from dataclasses import dataclass
from functools import partial

from memfit.estimation.bfc import OutOfMemory
from memfit.estimation.lifetimes import Program, lifetimes
from memfit.estimation.replay import Replay, replay
from memfit.estimation.trials import Trials
from memfit.estimation.workspace import Workspace, cpu_workspace, steady_workspace
from memfit.hardware.catalog import GPU
from memfit.hardware.host import usable_cores
from memfit.trace.step import Step

NO_LIMIT = 2**50
"""More memory than any device has."""


@dataclass(frozen=True)
class _Order:
    """An order in which a step's operations run."""

    seed: int | None = None
    """Perturbs the order of dispatch; `None` is the plain order."""
    threads: int = 1
    """How many operations run at once."""


@dataclass(frozen=True)
class _Variant:
    """One way in which steps may run."""

    orders: tuple[_Order, ...] = (_Order(),)
    """The orders of one step after the other."""
    descending: bool = False
    """Whether regions are handed out at descending addresses, by a GPU's driver or the system."""

    @property
    def is_plain(self) -> bool:
        """Whether all steps keep the plain order."""
        return all(order.seed is None for order in self.orders)


# A GPU's runs differ in order and addresses; a CPU's order differs more.
_PERTURBED = (_Order(0),)
_ON_GPU = (_Variant(), _Variant(descending=True), _Variant(_PERTURBED), _Variant(_PERTURBED, descending=True))
# More threads than this find nothing to do in a step that is one chain of layers, as a rule.
_MOST_THREADS = 4
_SEEDS = 5


def _on_cpu() -> tuple[_Variant, ...]:
    """The order of a CPU's threads differs from step to step, and so what each step leaves of free chunks.

    It has one region where memfit measures or runs a script, and else regions below each other. Where other processes
    need its cores, one thread may do all the work of a step.
    """
    threads = min(usable_cores(), _MOST_THREADS)
    plain, *perturbed = (_Order(seed, threads) for seed in (None, *range(_SEEDS)))
    alone = (_Order(), _Order(_SEEDS))
    mixed = tuple(each for pair in zip(perturbed, alone * _SEEDS, strict=False) for each in pair)
    return (
        *(_Variant((order,)) for order in (plain, *perturbed, *alone)),
        *(_Variant(orders, descending=True) for orders in ((plain,), tuple(perturbed), mixed)),
    )


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
    scratch: int = 0
    """The most that may be held besides: by the operation of one more thread, where not all threads are replayed, or by
    another convolution kernel than the likely one."""


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
        self._trials = Trials(gpu, self._steady) if gpu else None
        self._programs_of: int | None = None
        self._kept: dict[_Order, tuple[list[Program], Program]] = {}

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
        runs: list[tuple[Replay, list[Program]]] = []
        peaks: list[int] = []
        out_of_memory = False
        variants = _ON_GPU if on_gpu else _on_cpu()
        for variant in variants:
            # A GPU's plain order has two directions, except where everything is one region.
            is_likely = variant.is_plain if on_gpu else variant is variants[0]
            if not (is_likely or band) or (variant.descending and not growth):
                continue
            programs, first = self._programs(batch, variant)
            try:
                result = replay(
                    self.step,
                    programs,
                    first,
                    limit=limit,
                    growth=growth and (on_gpu or variant.descending),
                    resident=resident,
                    descending=variant.descending,
                )
            except OutOfMemory:
                if is_likely:
                    raise
                out_of_memory = True
            else:
                if is_likely or (self.step.has_loops and variant.is_plain):
                    runs.append((result, programs))
                peaks.append(result.steady_peak)
        # Of the two ways to hand out regions the one that takes more, as a peak is the most of many steps; so does a
        # backward loop, which runs ahead of the sums of its weights' gradients.
        result, programs = max(runs, key=lambda run: run[0].steady_peak)
        at = result.peak_program
        peaks = sorted(peaks) + ([limit] if out_of_memory else [])
        if self._trials:
            scratch = self._trials.most_beyond_steady(self.step, batch) if band else 0
        else:
            scratch = _largest_scratch(programs) if usable_cores() > _MOST_THREADS else 0
        return GraphPrediction(result, programs[at], self._outcomes()[at], tuple(peaks), scratch)

    def trials_are_known(self, batch: int) -> bool:
        """Whether cuDNN said which kernels the first step tries."""
        return self._trials is not None and self._trials.are_known(self.step, batch)

    def _programs(self, batch: int, variant: _Variant) -> tuple[list[Program], Program]:
        """The steady programs and the first one, kept for the batch size asked for last."""
        if self._programs_of != batch:
            self._kept, self._programs_of = {}, batch
        kept = [self._in_order(batch, order) for order in variant.orders]
        return [program for steady, _ in kept for program in steady], kept[0][1]

    def _in_order(self, batch: int, order: _Order) -> tuple[list[Program], Program]:
        if order not in self._kept:
            walk = partial(lifetimes, batch=batch, seed=order.seed, threads=order.threads)
            steady = [walk(step, workspace=self._steady) for step in self._outcomes()]
            tried = self._trials.of_one_run() if self._trials else cpu_workspace
            self._kept[order] = steady, walk(self.step, workspace=tried, first=True)
        return self._kept[order]

    def _outcomes(self) -> list[Step]:
        return [self.step, self.step.otherwise] if self.step.otherwise else [self.step]


def _largest_scratch(programs: list[Program]) -> int:
    return max((event.size for program in programs for event in program.events if event.workspace), default=0)
