"""One model's training with a plan: verified on the first batch, and kept alive when memory runs out."""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from types import TracebackType
from typing import Any

from memfit.compat.optimizers import built_whole, optimizers_of
from memfit.compat.step_function import (
    StepFunction,
    has_gradients_of_convolutions,
    without_optionals,
)
from memfit.errors import NotExactError
from memfit.framework import keras, tensorflow
from memfit.hardware.out_of_memory import out_of_memory
from memfit.planning.applied import applied, check
from memfit.planning.plan import Plan
from memfit.techniques.instance import has_own_step
from memfit.techniques.sliced_step import SlicedStep
from memfit.techniques.technique import GRADES, Grade
from memfit.train.fallbacks import Fallbacks
from memfit.train.protection import Protection
from memfit.train.recovered import Phase, Recovered
from memfit.train.snapshot import create_variables
from memfit.verification.samples import spec_of
from memfit.verification.verify import PROVEN, refuse_inexact, verified

_FUNCTIONS: dict[Phase, str] = {"train": "train_function", "validation": "test_function"}
_STEPS: dict[Phase, str] = {"train": "train_step", "validation": "test_step"}

_DRAWS = "its step draws random numbers with tf.random, which cannot be repeated"


@dataclass(frozen=True)
class Recovery:
    """How a session deals with running out of memory."""

    notify: Callable[[Recovered], None]
    """Is told each time that a batch was retried with less memory."""
    gave_up: Callable[[str], None] = lambda _reason: None
    """Is told why a batch could not be retried, before the error is raised."""
    every_step: bool = True
    """Whether every step can be undone; otherwise only those that are more likely than others to run out of memory."""


class Session:
    """Trains a model with a plan inside: `fit` and `evaluate` do what they did, in less memory.

    Args:
        model: A compiled Keras model.
        plan: What is applied at first.
        numerics: How exact the plan and what replaces it must be.
        recovery: What to do when memory runs out; `None` is nothing.
        choose: Finds the plan when the first batch is there, in place of `plan`.
        step_aside: Is told why training runs unmodified, where it does.

    Raises:
        InputError: If the model cannot carry the plan; nothing has been touched then.
        NotExactError: If the plan is known not to be as exact as asked for.
    """

    def __init__(
        self,
        model: Any,
        plan: Plan,
        *,
        numerics: Grade = "exact",
        recovery: Recovery | None = None,
        choose: Callable[[Any], Plan] | None = None,
        step_aside: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.plan, self.numerics = plan, _loosest(numerics, plan)
        self._model, self._recovery, self._choose, self._tell = model, recovery, choose, step_aside
        if _is_built(model):
            _refuse_close(check(model, plan), self.numerics)
        self._applied = ExitStack()
        self._steps: dict[Phase, int] = {"train": 0, "validation": 0}
        self._protected: dict[Phase, Protection] = {}
        self._plain: dict[Phase, StepFunction] = {}
        self._own: dict[Phase, Any] = {}
        self._aside: dict[Phase, Any] = {}
        self._made_before: dict[Phase, Any] = {}
        self._fallbacks = Fallbacks(model, self.numerics)
        self._begun = False
        self._on_device = recovery is not None and recovery.every_step

    @property
    def notify(self) -> Callable[[Recovered], None] | None:
        """Whom to tell that a batch was retried."""
        return None if self._recovery is None else self._recovery.notify

    @notify.setter
    def notify(self, value: Callable[[Recovered], None]) -> None:
        if self._recovery is not None:
            self._recovery = replace(self._recovery, notify=value)

    @property
    def in_place(self) -> bool:
        """Whether the model still trains this way; compiling it anew makes Keras forget."""
        return bool(self._own) and all(
            getattr(self._model, _FUNCTIONS[phase]) is function for phase, function in self._own.items()
        )

    @property
    def exhausted(self) -> bool:
        """Whether no fallback is left: all were tried, Keras's own function trains, or others draw other numbers."""
        return self._fallbacks.exhausted or "train" in self._aside or (self.numerics == "exact" and self.draws)

    @property
    def draws(self) -> bool:
        """Whether the train step draws random numbers that cannot be drawn again."""
        protection = self._protected.get("train")
        return protection is not None and not protection.repeatable

    @property
    def changes_other_variables(self) -> bool:
        """Whether the train step changes variables that neither the model nor its optimizers hold."""
        protection = self._protected.get("train")
        state = () if protection is None else protection.function.state
        return any(each.changed and not each.held for each in state)

    def __enter__(self) -> "Session":
        if self._recovery is None and self._choose is None and not self.plan.techniques:
            return self
        # The function of an earlier fit goes on where it was: it has its own count of random numbers.
        self._made_before = {phase: getattr(self._model, name, None) for phase, name in _FUNCTIONS.items()}
        if _is_built(self._model):
            self._apply(self.plan)
        self._take_over()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for phase, function in self._own.items():
            if getattr(self._model, _FUNCTIONS[phase]) is function:
                setattr(self._model, _FUNCTIONS[phase], self._aside.get(phase))
        self._own.clear()
        self._applied.close()

    def _take_over(self) -> None:
        # Keras uses a function it finds in place of making one.
        self._own = {phase: self._function_of(phase) for phase in _FUNCTIONS}
        for phase, function in self._own.items():
            setattr(self._model, _FUNCTIONS[phase], function)

    def _function_of(self, phase: Phase) -> Callable[[Any], Any]:
        return lambda iterator: self._executed(phase, iterator)

    def _apply(self, plan: Plan) -> None:
        self._applied.close()
        if plan.techniques:
            self._applied.enter_context(applied(self._model, plan))
        self.plan = plan
        self._protected.clear()
        if self._own:
            self._take_over()

    def _executed(self, phase: Phase, iterator: Any) -> Any:
        """What Keras's own function does with an iterator: as many steps as `steps_per_execution` says."""
        if phase in self._aside:
            return self._aside[phase](iterator)
        if reason := _cannot_watch(self._model):
            return self._step_aside(phase, self._proven_first(phase, iterator, reason), reason)
        spec = without_optionals(getattr(iterator, "element_spec", None))
        logs = None
        for number in range(self._model.steps_per_execution):
            try:
                logs = self._next_step(phase, iterator, spec)
            except (StopIteration, tensorflow().errors.OutOfRangeError):
                if number == 0:
                    raise
                break
            if phase in self._aside:
                break
        return logs

    def _next_step(self, phase: Phase, iterator: Any, spec: Any) -> Any:
        # Before the first batch is taken, so that Keras's own function gets all of them.
        if phase not in self._protected and (reason := self._why_not_ours(phase, spec)):
            return self._step_aside(phase, iterator, reason)
        protection = self._protected.get(phase)
        if protection is not None and spec is not None and not self._looks_at_batches(phase, protection, spec):
            self._steps[phase] += 1
            logs = protection.function.on_next(iterator)
            protection.end()
            return logs
        try:
            data = without_optionals(next(iterator))
        except StopIteration:
            if protection is None or spec is None or self._model.steps_per_execution > 1:
                raise
            return self._end_of_data(phase, iterator, spec)
        if phase == "train" and not self._begun:
            self._begin(data, spec)
        try:
            self._prepare(phase, data, spec)
        except Exception as error:
            if self.plan.techniques:
                raise
            return self._step_aside(phase, chain([data], iterator), f"tracing its step raised {type(error).__name__}")
        if not self._steps[phase] and not self._protected[phase].repeatable:
            # A plan was chosen or applied first, so Keras's own function cannot take over with its count of draws.
            self._tell(f"{_DRAWS}; a later fit or a restart starts them over")
        self._steps[phase] += 1
        return self._run(phase, data, spec)

    def _why_not_ours(self, phase: Phase, spec: Any) -> str | None:
        """Trace a phase's step, where there is no plan to decide about; returns why it must be left to Keras, if so."""
        if self._choose is not None or self.plan.techniques or spec is None:
            return None
        try:
            self._prepare(phase, None, spec)
        except Exception as error:  # noqa: BLE001 (Keras's own function will say it better)
            return f"tracing its step raised {type(error).__name__}"
        if not self._protected[phase].repeatable:
            # Each traced copy of a step counts its draws for itself.
            return _DRAWS
        return None

    def _looks_at_batches(self, phase: Phase, protection: Protection, spec: Any) -> bool:
        """Whether the next batch is needed here: to do it again if memory runs out, or to see the end of the data."""
        if self._model.steps_per_execution > 1:
            # Where the data ends between two steps, a step that asks for its batch itself would count all the same.
            return True
        if not self._is_plain(phase) and not self._model.jit_compile:
            return True
        if not protection.repeatable:
            # The first batch was needed to choose a plan; a function that takes batches itself would draw anew.
            return True
        return self._recovery is not None and protection.may_run_out(spec)

    def _is_plain(self, phase: Phase) -> bool:
        """Whether the phase's step is Keras's own."""
        return not self.plan.techniques and (phase == "train" or self._fallbacks.validation_slice is None)

    def _end_of_data(self, phase: Phase, iterator: Any, spec: Any) -> Any:
        """End an epoch of unknown length as Keras does.

        Keras's step asks for a batch and finds that there is none; what does not depend on the batch runs all the same:
        counters and seeds move. XLA runs nothing without the batch.
        """
        if self._model.jit_compile or self._is_plain(phase):
            return self._protected[phase].function.on_next(iterator)
        if phase not in self._plain:
            plan = self.plan
            self._applied.close()
            self._plain[phase] = StepFunction(self._model, getattr(self._model, _STEPS[phase]))
            self._plain[phase].trace(spec)
            self._apply(plan)
        return self._plain[phase].on_next(iterator)

    def _proven_first(self, phase: Phase, iterator: Any, reason: str) -> Any:
        """Verify the plan on the first batch, also where the steps are left to Keras; returns all batches."""
        claims = self.numerics == "exact" and self.plan.techniques.keys() & {*PROVEN}
        if phase != "train" or self._begun or not claims:
            return iterator
        if self._model.distribute_strategy.num_replicas_in_sync > 1:
            raise NotExactError(
                f"the plan cannot be verified, because {reason}. Plan without {', '.join(sorted(claims))}, or accept "
                'that it may change the result with numerics="close".'
            )
        spec = without_optionals(getattr(iterator, "element_spec", None))
        data = without_optionals(next(iterator))
        self._begin(data, spec)
        return chain([data], iterator)

    def _step_aside(self, phase: Phase, iterator: Any, reason: str) -> Any:
        """Let Keras's own function do it, now and from now on."""
        model, name = self._model, _FUNCTIONS[phase]
        self._tell(reason)
        setattr(model, name, self._made_before.get(phase))
        (model.make_train_function if phase == "train" else model.make_test_function)()
        self._aside[phase] = getattr(model, name)
        setattr(model, name, self._own[phase])
        return self._aside[phase](iterator)

    def _begin(self, batch: Any, spec: Any) -> None:
        """The first batch is there: find or verify the plan."""
        self._begun = True
        if self._choose is not None or self.plan.techniques:
            self._create_variables(spec if spec is not None else spec_of(batch, any_size=False))
        if self._choose is not None:
            self._apply(self._choose(batch))
            return
        if not self.plan.techniques:
            return
        self._applied.close()
        _refuse_close(check(self._model, self.plan), self.numerics)
        if self.numerics == "exact" and self.plan.techniques.keys() & {*PROVEN}:
            refuse_inexact(verified(self._model, self.plan.techniques, batch))
        self._apply(self.plan)

    def _create_variables(self, spec: Any) -> None:
        """Have the train step create the weights of a model that is not built, before anything else does.

        Keras builds such a model when it traces its first step. Built in another way, or after other things have drawn
        from Python's random numbers, it would begin with other weights. Errors are left to the step to raise.
        """
        if not all(each.built for each in self._model._flatten_layers()):
            with suppress(Exception):
                create_variables(self._model, spec)

    def _prepare(self, phase: Phase, data: Any, spec: Any) -> None:
        """Trace a phase's step, unless it is."""
        if phase in self._protected:
            return
        function = StepFunction(self._model, self._step(phase))
        with built_whole(optimizers_of(self._model)):
            function.trace(spec if spec is not None else spec_of(data, any_size=False))
        jit = bool(self._model.jit_compile)
        always = self._recovery is not None and self._recovery.every_step
        self._protected[phase] = Protection(function, jit=jit, always=always, on_device=self._on_device)

    def _step(self, phase: Phase) -> Callable[[Any], Any]:
        size = self._fallbacks.validation_slice
        if phase == "validation" and size is not None:
            return lambda data: SlicedStep(self._model, size, training=False).run(data)
        step: Callable[[Any], Any] = getattr(self._model, _STEPS[phase])
        return step

    def _run(self, phase: Phase, data: Any, spec: Any) -> Any:
        if self._recovery is None:
            return self._protected[phase].function(data)
        began = time.perf_counter()
        first: Exception | None = None
        while True:
            protection: Protection | None = None
            try:
                self._prepare(phase, data, spec)
                protection = self._protected[phase]
                protection.begin(data)
                logs = protection.function(data)
            except Exception as error:
                if first is None and out_of_memory(error) is None:
                    raise
                first = first or error
                undone = protection is None or self._undone(protection)
                _release_failed_step()
                if not undone or not self._fall_back(phase, data):
                    self._recovery.gave_up(self._why_not(undone=undone))
                    # What ended the step is what the user has to know, not how the last fallback failed.
                    raise first from None
                continue
            protection.end()
            if first is not None:
                self._tell_recovered(phase, first, time.perf_counter() - began)
            return logs

    def _undone(self, protection: Protection) -> bool:
        if not protection.repeatable:
            # The numbers it has drawn cannot be drawn again.
            return False
        return protection.undo()

    def _fall_back(self, phase: Phase, data: Any) -> bool:
        """Prepare the next way to do the batch again; false where there is none."""
        if self._on_device and not self._model.jit_compile:
            # The state is kept in host memory from now on, which may be enough.
            self._on_device = False
            self._protected.clear()
            return True
        if self._is_plain(phase) and phase in self._protected:
            self._plain[phase] = self._protected[phase].function
        if phase == "validation":
            self._protected.pop(phase, None)
            return self._fallbacks.next_slice(data)
        convolves = phase in self._protected and has_gradients_of_convolutions(self._protected[phase].function)
        # A model that carries a plan cannot say which others it could carry.
        self._applied.close()
        plan = self._fallbacks.next_plan(self.plan, data, convolves=convolves)
        if plan is None:
            self._apply(self.plan)
            return False
        self._apply(plan)
        return True

    def _why_not(self, *, undone: bool) -> str:
        if not undone:
            return "memory ran out, and the step cannot be repeated: the state before it was not kept"
        tried = "; ".join(self._fallbacks.tried)
        return f"memory ran out, and no fallback is left; tried {tried}" if tried else "memory ran out: no fallback"

    def _tell_recovered(self, phase: Phase, error: Exception, seconds: float) -> None:
        size = self._fallbacks.validation_slice
        techniques = self.plan.techniques if phase == "train" else {} if size is None else {"slices": size}
        message = out_of_memory(error) or str(error)
        if self.notify is not None:
            self.notify(Recovered(phase, self._steps[phase], message, str(error), techniques, seconds))


def _loosest(numerics: Grade, plan: Plan) -> Grade:
    """How exact a plan has to be: a plan that was made for a looser grade was asked for."""
    made_for = plan.prediction.numerics if plan.prediction is not None else "exact"
    return max(numerics, made_for, key=GRADES.index)


def _refuse_close(verdicts: Any, numerics: Grade) -> None:
    """Refuse techniques of which it is known beforehand that they change the result, unless they say so by name."""
    for name in PROVEN:
        if name in verdicts and GRADES.index(verdicts[name].grade) > GRADES.index(numerics):
            raise NotExactError(
                f"{name} does not give the same result here: {verdicts[name].why}. Plan without it, or accept the "
                f'difference with numerics="{verdicts[name].grade}".'
            )


def _is_built(model: Any) -> bool:
    """Whether all that a plan changes is there. A model that only trains others, such as a GAN, is never built."""
    if model.built or not has_own_step(model, "train_step"):
        return bool(model.built)
    layers = list(model._flatten_layers(include_self=False))
    return bool(layers) and all(each.built for each in layers)


def _cannot_watch(model: Any) -> str | None:
    """Why a model's steps must be left to Keras; `None` where they need not."""
    trainer = keras().Model
    if model.run_eagerly:
        return "the model runs eagerly"
    if model.distribute_strategy.num_replicas_in_sync > 1:
        return "the model trains on several replicas"
    if type(model).make_train_function is not trainer.make_train_function:
        return f"{type(model).__name__} makes its own train function"
    return None


def _release_failed_step() -> None:
    """Let go of what a step that failed has left behind.

    Sums that Grappler accumulates in a temporary variable stay under the number of the step, which is 0 for every
    function that is called eagerly: their memory would stay taken, and the next function find their names in use.
    """
    import_module("tensorflow.python.eager.context").context().clear_kernel_cache()
