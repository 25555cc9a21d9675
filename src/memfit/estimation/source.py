"""What stands behind an estimate: a model or a training step, traced once per phase and asked at any batch size."""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

from memfit.compat.optimizers import optimizers_of
from memfit.errors import InputError
from memfit.estimation.ahead import CompiledAhead, workers
from memfit.estimation.composition import Kind
from memfit.estimation.phases import GraphPhase, PhaseModel, PhasePrediction
from memfit.estimation.regime import Regime
from memfit.estimation.xla.hlo import NotCompilableError
from memfit.hardware.catalog import GPU, find_gpu
from memfit.hardware.host import host_memory
from memfit.trace.batch import batch_spec
from memfit.trace.function import TraceError, step_function
from memfit.trace.garbage import no_garbage_collected
from memfit.trace.own_step import OwnStep
from memfit.trace.step import Phase, Step
from memfit.trace.tracer import build, traced

UNKNOWN_CARD = "24GiB"
"""The card to predict for where there is none."""
_PHASES: tuple[Phase, ...] = ("train", "evaluate", "predict")


@cache
def cpu() -> GPU:
    """This machine's processor, as a device whose memory is limited."""
    memory = host_memory().ceiling
    return GPU("CPU", memory or find_gpu(UNKNOWN_CARD).memory)


class Subject(Protocol):
    """What is predicted."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases it has."""
        ...

    def graph(self, phase: Phase, gpu: GPU | None, batch: int) -> Callable[[], Step]:
        """Its step, traced; what is returned reads it as the executor runs it, in any thread."""
        ...

    def compiled(self, phase: Phase, gpu: GPU, batch: int) -> CompiledAhead:
        """Its step as XLA compiles it."""
        ...

    def idle_bytes(self) -> int:
        """What training holds in memory that the other phases do not use."""
        ...


class ModelSubject:
    """A Keras model."""

    phases = _PHASES

    def __init__(self, model: Any, data: Any | None) -> None:
        self._model, self._data = model, data
        self.name: str = model.name

    def graph(self, phase: Phase, gpu: GPU | None, batch: int) -> Callable[[], Step]:
        """Trace the step."""
        return traced(self._model, phase, gpu=gpu, data=self._data, batch_size=batch)

    def compiled(self, phase: Phase, gpu: GPU, batch: int) -> CompiledAhead:
        """Prepare the step for XLA, which cannot create variables."""
        spec = batch_spec(self._model, self._data)
        build(self._model, spec, batch)
        return CompiledAhead(
            step_function(self._model, phase),
            spec,
            gpu=gpu,
            variables=self._variable_bytes(phase),
            layers=[layer.name for layer in self._model._flatten_layers(include_self=False)],
            on_card=phase == "train",
        )

    def idle_bytes(self) -> int:
        """Validation runs inside `fit`, with the optimizer's state in memory all the while."""
        return _total_bytes(self._slots())

    def _slots(self) -> list[Any]:
        slots = [variable for optimizer in optimizers_of(self._model) for variable in optimizer.variables]
        return list({id(variable): variable for variable in slots}.values())

    def _variable_bytes(self, phase: Phase) -> dict[Kind, int]:
        slots = {id(variable) for variable in self._slots()}
        parameters = _total_bytes(variable for variable in self._model.variables if id(variable) not in slots)
        return {"parameters": parameters, "optimizer_state": self.idle_bytes() if phase == "train" else 0}


class FunctionSubject:
    """A training step of the user's own."""

    phases: tuple[Phase, ...] = ("train",)

    def __init__(self, step: OwnStep) -> None:
        self._step = step
        self.name = step.name

    def graph(self, phase: Phase, gpu: GPU | None, batch: int) -> Callable[[], Step]:
        """Trace the step."""
        del phase
        step = self._step.trace_step(gpu, batch)
        return lambda: step

    def compiled(self, phase: Phase, gpu: GPU, batch: int) -> CompiledAhead:
        """Prepare the step for XLA, which cannot create variables."""
        del phase, batch
        sizes = self._step.variable_bytes()
        slots = sizes.get("optimizer", 0)
        parameters = sizes.get("parameter", 0) + sizes.get("state", 0)
        variables: dict[Kind, int] = {"parameters": parameters, "optimizer_state": slots}
        call, arguments = self._step.call, self._step.arguments.at
        return CompiledAhead(call, arguments, gpu=gpu, variables=variables, layers=self._step.layer_names)

    def idle_bytes(self) -> int:
        """It has no other phases."""
        return 0


class Source:
    """A subject on a card, in a regime.

    Args:
        subject: What is predicted.
        gpu: The card.
        regime: Whether XLA compiles its steps.
        resident: Bytes of data that lie on the device all the time.
    """

    def __init__(self, subject: Subject, gpu: GPU, regime: Regime, resident: int) -> None:
        self.subject, self.gpu, self.regime, self.resident = subject, gpu, regime, resident
        self._steps: dict[tuple[Phase, int | None], GraphPhase] = {}
        self._compiled: dict[Phase, CompiledAhead] = {}
        self._started: dict[Phase, Future[Step]] = {}
        self._answers: dict[tuple[Phase, int, int, bool, bool], PhasePrediction | None] = {}

    def predict(
        self, phase: Phase, batch: int, *, limit: int, growth: bool, band: bool = True
    ) -> PhasePrediction | None:
        """The peak of a phase at a batch size; `None` if it does not fit the limit."""
        key = (phase, batch, limit, growth, band)
        if key not in self._answers:
            with no_garbage_collected():
                model = self._phase(phase, batch)
                resident = self.resident + (0 if phase == "train" else self.subject.idle_bytes())
                self._answers[key] = model.predict(batch, limit=limit, growth=growth, resident=resident, band=band)
        return self._answers[key]

    def start(self, batch: int, phases: Iterable[Phase] | None = None) -> None:
        """Trace all phases, or some, and optimise or compile each while the next is traced.

        What cannot be traced is left out: asking for it says why.
        """
        threads = workers()
        try:
            with no_garbage_collected():
                for phase in phases or self.subject.phases:
                    with suppress(TraceError, NotCompilableError):
                        self._start(phase, batch, threads)
        finally:
            threads.shutdown(wait=False)

    def _start(self, phase: Phase, batch: int, threads: ThreadPoolExecutor) -> None:
        if self.regime == "graph":
            self._started[phase] = threads.submit(self.subject.graph(phase, self._target, batch))
        else:
            self._compiled[phase] = self.subject.compiled(phase, self.gpu, batch)
            self._compiled[phase].start(batch, threads)

    def step(self, batch: int) -> Step:
        """The training step as the executor runs it."""
        return self._graph("train", batch).step

    def refuse_other_batches(self, what: str, batch: int) -> None:
        """Say that the step holds for one batch size, where more are asked for.

        Raises:
            InputError: If it does.
        """
        if self.regime == "graph" and self._graph("train", batch).step.only_batch is not None:
            raise InputError(
                f"{self.subject.name!r} has a fixed batch size inside (it could be traced at {batch} only), so {what} "
                "cannot be predicted. Ask about each size it accepts: estimate.at(size).fits(budget)."
            )

    def _phase(self, phase: Phase, batch: int) -> PhaseModel:
        if self.regime == "graph":
            return self._graph(phase, batch)
        if phase not in self._compiled:
            self._compiled[phase] = self.subject.compiled(phase, self.gpu, batch)
        return self._compiled[phase]

    def _graph(self, phase: Phase, batch: int) -> GraphPhase:
        """The step for all batch sizes, or, where a fixed batch is inside it, for this one."""
        known = self._steps.get((phase, None)) or self._steps.get((phase, batch))
        if known is None:
            started = self._started.pop(phase, None)
            step = started.result() if started else self.subject.graph(phase, self._target, batch)()
            known = self._steps[phase, step.only_batch] = GraphPhase(step, self._target)
        return known

    @property
    def _target(self) -> GPU | None:
        return None if self.gpu is cpu() else self.gpu


def _total_bytes(variables: Iterable[Any]) -> int:
    return sum(int(variable.value.dtype.size) * math.prod(variable.shape) for variable in variables)
