"""Training that survives running out of memory: the same batch again, in a smaller way, and nothing lost or doubled."""

import math
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any, Literal

from memfit.errors import InputError, RecoveryWarning
from memfit.framework import tensorflow
from memfit.hardware.out_of_memory import out_of_memory
from memfit.planning.applied import applied, check
from memfit.planning.plan import Plan
from memfit.techniques.instance import has_own_step, refuse_own_train_step
from memfit.techniques.sliced_step import SlicedStep
from memfit.techniques.technique import Grade
from memfit.train.smaller import smaller_plans
from memfit.train.transaction import Transaction

Phase = Literal["train", "validation"]


@dataclass(frozen=True)
class Recovered:
    """One time that memory ran out and training went on."""

    phase: Phase
    step: int
    """Which step of this fit and phase it was, from 1."""
    message: str
    """What TensorFlow said, in a sentence."""
    error: str
    """All it said."""
    techniques: dict[str, Any]
    """What runs from now on."""
    seconds: float
    """What it cost: from the failed step's start until the batch was through."""

    @property
    def what(self) -> str:
        """What was changed."""
        how = ", ".join(f"{name}={value!r}" for name, value in self.techniques.items())
        return f"the same batch was done again, and the rest will be, with {how}"

    def __str__(self) -> str:
        return (
            f"out of memory in {self.phase} step {self.step}: {self.what} ({self.seconds:.1f} s). "
            f"TensorFlow said: {self.message}"
        )


Notify = Callable[[Recovered], None]


def warn(event: Recovered) -> None:
    """Tell whoever looks at warnings."""
    warnings.warn(RecoveryWarning(str(event)), stacklevel=2)


def refuse_unrecoverable(model: Any) -> None:
    """Refuse a model whose steps cannot be tried again: they are not Keras's own, or not on one device."""
    refuse_own_train_step(model, "recover=True")
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise InputError("recover=True does not work under a distribution strategy with several replicas yet.")


class Recovering:
    """A plan applied to a model whose `fit` and `evaluate` survive running out of memory.

    Args:
        model: A built, compiled Keras model.
        plan: What is applied at first.
        numerics: How exact smaller ways may be.
        notify: Whom to tell of each time.
    """

    def __init__(self, model: Any, plan: Plan, *, numerics: Grade = "exact", notify: Notify = warn) -> None:
        check(model, plan)
        self.plan = plan
        self._model, self._numerics = model, numerics
        self.notify = notify
        """Whom to tell of each time."""
        self._applied = ExitStack()
        self._steps: dict[Phase, int] = {"train": 0, "validation": 0}
        self._functions: dict[Phase, Transaction] = {}
        self._validation_size: int | None = None
        self._ladder: list[Plan] | None = None
        self._train_function: Any = None

    @property
    def in_place(self) -> bool:
        """Whether the model still trains this way; compiling it anew makes Keras forget."""
        return self._train_function is not None and self._model.train_function is self._train_function

    @property
    def exhausted(self) -> bool:
        """Whether every smaller way has been tried."""
        return self._ladder == []

    def __enter__(self) -> "Recovering":
        self._apply(self.plan)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._model.train_function = self._model.test_function = None
        self._applied.close()

    def _apply(self, plan: Plan) -> None:
        model = self._model
        self._applied.close()
        self._applied.enter_context(applied(model, plan))
        self.plan = plan
        self._functions.clear()
        # Keras keeps a function it finds; applying a plan makes it forget them.
        model.train_function = self._train_function = lambda iterator: self._executed("train", iterator)
        model.test_function = lambda iterator: self._executed("validation", iterator)

    def _executed(self, phase: Phase, iterator: Any) -> Any:
        """What Keras's own function does with an iterator: as many steps as `steps_per_execution` says."""
        optional = tensorflow().experimental.Optional
        logs = None
        for number in range(self._model.steps_per_execution):
            try:
                data = next(iterator)
            except StopIteration:
                if number == 0:
                    raise
                break
            data = tensorflow().nest.map_structure(lambda each: None if isinstance(each, optional) else each, data)
            self._steps[phase] += 1
            logs = self._tried(phase, data)
        return logs

    def _tried(self, phase: Phase, data: Any) -> Any:
        began = time.perf_counter()
        said: tuple[str, str] | None = None
        while True:
            function = self._function(phase)
            try:
                logs = function(data)
            except Exception as error:
                message = out_of_memory(error)
                if message is None or function.half_written or not self._make_smaller(phase, _samples(data)):
                    raise
                said = said or (message, str(error))
                _clear_away()
                continue
            if said is not None:
                seconds = time.perf_counter() - began
                self.notify(Recovered(phase, self._steps[phase], *said, self._techniques(phase), seconds))
            return logs

    def _function(self, phase: Phase) -> Transaction:
        if phase not in self._functions:
            model, size = self._model, self._validation_size
            if phase == "train":
                step = model.train_step
            elif size is None:
                step = model.test_step
            else:
                step = lambda data: SlicedStep(model, size, training=False).run(data)  # noqa: E731
            self._functions[phase] = Transaction(model, step)
        return self._functions[phase]

    def _make_smaller(self, phase: Phase, batch: int) -> bool:
        if phase == "validation":
            size = min(self._validation_size or batch, batch)
            self._validation_size = math.ceil(size / 2)
            self._functions.pop(phase, None)
            return size > 1 and not has_own_step(self._model, "test_step")
        if self._ladder is None:
            # A model that carries a plan cannot say which others it could carry.
            self._applied.close()
            self._ladder = [*smaller_plans(self._model, self.plan, batch, self._numerics)]
        if not self._ladder:
            return False
        self._apply(self._ladder.pop(0))
        return True

    def _techniques(self, phase: Phase) -> dict[str, Any]:
        if phase == "validation":
            return {"slices": self._validation_size}
        return self.plan.techniques


def _clear_away() -> None:
    """Let go of what a step that failed has left behind.

    Sums that Grappler accumulates in a temporary variable stay under the number of the step, which is 0 for every
    function that is called eagerly: their memory would stay taken, and the next function find their names in use.
    """
    import_module("tensorflow.python.eager.context").context().clear_kernel_cache()


def _samples(data: Any) -> int:
    flat = [each for each in tensorflow().nest.flatten(data) if each is not None]
    return int(flat[0].shape[0])
