"""One `fit` of a script: planned, recorded, kept alive, and taken up again where another process has left it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from inspect import BoundArguments
from typing import TYPE_CHECKING, Any

from memfit.framework import keras
from memfit.hardware.out_of_memory import out_of_memory
from memfit.observe import feed
from memfit.observe.recorder import Recorder
from memfit.script.checkpoints import Checkpoints, Pace
from memfit.script.folder import Progress, RunFolder
from memfit.script.sessions import Decision, Sessions
from memfit.script.words import say
from memfit.techniques.together import fingerprint
from memfit.train.recovered import Recovered
from memfit.train.snapshot import create_variables

if TYPE_CHECKING:
    from memfit.script.fit_state import FitState
    from memfit.train.session import Session

Fit = Callable[..., Any]


@dataclass(frozen=True)
class Watch:
    """What all fits of a script have in common."""

    folder: RunFolder
    sessions: Sessions
    recorder: Recorder
    pace: Pace
    died: Progress | None
    """How far the process came that was here before."""


class WatchedFit:
    """One call of `fit`.

    Args:
        watch: What it has in common with others.
        number: Which of the script's fits it is, from 1.
        arguments: What `fit` was called with.
    """

    def __init__(self, watch: Watch, number: int, arguments: BoundArguments) -> None:
        self._watch, self._number, self._arguments = watch, number, arguments
        self._model = arguments.args[0]
        self._others = given_callbacks(arguments)
        self._while_it_lasts = ExitStack()
        self._state: FitState | None = watch.folder.snapshot(number) if watch.died is not None else None
        self._checkpoints = self._make_checkpoints()
        self._session: Session | None = None
        self._decision: Decision | None = None

    @property
    def batch(self) -> int | None:
        """The batch size, once it is known."""
        return None if self._decision is None else self._decision.batch

    @property
    def spec(self) -> Any:
        """What a batch looks like, once it is known."""
        return None if self._decision is None else self._decision.spec

    def run(self, fit: Fit) -> Any:
        """Train, or take over what was trained already."""
        if self._state is not None and self._state.finished:
            if self._took_over(fit):
                return self._model.history
            self._state = None
            self._checkpoints = self._make_checkpoints()
        if self._state is not None:
            for each in self._others:
                if isinstance(each, keras().callbacks.CSVLogger):
                    each.append = True
        ours = [*_history_for(self._others), self._watch.recorder, self._checkpoints]
        with self._while_it_lasts, callbacks_added(self._arguments, ours):
            try:
                history = fit(*self._arguments.args, **self._arguments.kwargs)
            except BaseException as error:
                said = out_of_memory(error)
                if said is None or self._session is None:
                    self._note(running=False)
                else:
                    self._note(out_of_memory=said, smaller=self._has_fallback)
                raise
        self._note(running=False)
        return history

    def prepare(self) -> None:
        """Open the model's session; Keras's `fit` calls it when the model is built and its train function is due."""
        watch, model = self._watch, self._model
        if self._session is not None:
            return
        if self._state is not None:
            # So that there are variables to put the state into; one that does not match is not put back.
            with suppress(Exception):
                create_variables(model, feed.element_spec())
            if self._state.finished:
                return
        self._checkpoints.order_repeats = feed.order_repeats()
        self._session = watch.sessions.open(
            model, self._while_it_lasts, self._recovered, self._decided, died=self._died_here
        )

    def _decided(self, decision: Decision) -> None:
        """Say how the model is trained, now that its first batch is there."""
        self._decision = decision
        self._describe(decision)
        mark = fingerprint(self._model)
        techniques = decision.plan.techniques
        self._watch.folder.write_progress(Progress(self._number, True, mark, techniques, decision.has_fallback))
        if self._died_here is not None:
            self._say_where_it_continues(techniques)

    def _describe(self, decision: Decision) -> None:
        plan = decision.plan if decision.plan.techniques else None
        describe = partial(self._watch.recorder.describe, plan=plan, batch_size=decision.batch)
        try:
            describe(estimate=decision.estimate)
        except Exception as error:  # noqa: BLE001 (a prediction is help, and the script has to run without)
            say(f"{self._model.name}: its prediction is not in the record: {type(error).__name__}")
            describe(estimate=None)

    @property
    def _died_here(self) -> Progress | None:
        died = self._watch.died
        return died if died is not None and died.fit == self._number else None

    @property
    def _has_fallback(self) -> bool:
        has_one = self._decision is not None and self._decision.has_fallback
        return has_one and not (self._session is not None and self._session.exhausted)

    def _took_over(self, fit: Fit) -> bool:
        """Have Keras build the model without training it, and put the trained state in."""
        arguments = replace_arguments(self._arguments, callbacks=None, epochs=0, initial_epoch=0)
        with callbacks_added(arguments, [*_history_for([]), self._checkpoints]):
            fit(*arguments.args, **arguments.kwargs)
        if self._checkpoints.restored:
            say(f"fit {self._number} is already finished; restoring its result")
        return self._checkpoints.restored

    def _say_where_it_continues(self, techniques: dict[str, Any]) -> None:
        state = self._state
        where = "its beginning" if state is None else f"epoch {state.epoch + 1}"
        if state is not None and state.batch:
            where += f", batch {state.batch + 1}"
        how = ", ".join(f"{name}={value!r}" for name, value in techniques.items()) or "the same plan"
        say(f"fit {self._number} continues from {where} with {how}")
        self._watch.recorder.restarted(f"the process was restarted and continues from {where}", techniques)

    def _recovered(self, event: Recovered) -> None:
        say(str(event))
        self._watch.recorder.on_recovery(event)
        if event.phase == "train":
            self._watch.sessions.remember(self._model, self.batch, event.techniques)
            self._note(techniques=event.techniques)
        for each in self._others:
            if hasattr(each, "on_recovery"):
                each.on_recovery(event)

    def _note(self, **changes: Any) -> None:
        progress = self._watch.folder.progress()
        if progress is not None and progress.fit == self._number:
            self._watch.folder.write_progress(replace(progress, **changes))

    def _make_checkpoints(self) -> Checkpoints:
        keep = partial(self._watch.folder.write_snapshot, self._number)
        return Checkpoints(self._others, keep, self._watch.pace, resumed=self._state, complete=self._is_complete)

    def _is_complete(self) -> bool:
        return self._session is None or not self._session.changes_other_variables


@contextmanager
def callbacks_added(arguments: BoundArguments, more: Sequence[Any]) -> Iterator[None]:
    """Have Keras call these callbacks as well, after the script's own."""
    given = arguments.arguments.get("callbacks")
    if not isinstance(given, keras().callbacks.CallbackList):
        arguments.arguments["callbacks"] = [*given_callbacks(arguments), *more]
        yield
        return
    # Keras takes a list of this kind as it is, and the script keeps it.
    for each in more:
        given.append(each)
        each.set_model(arguments.args[0])
    try:
        yield
    finally:
        for each in more:
            given.callbacks.remove(each)


def given_callbacks(arguments: BoundArguments) -> list[Any]:
    """The script's callbacks."""
    given = arguments.arguments.get("callbacks")
    if given is None:
        return []
    if isinstance(given, keras().callbacks.CallbackList):
        return list(given.callbacks)
    return list(keras().tree.flatten(given))


def replace_arguments(arguments: BoundArguments, **changes: Any) -> BoundArguments:
    """The same arguments but for these."""
    changed = BoundArguments(arguments.signature, arguments.arguments.copy())
    changed.arguments.update(changes)
    return changed


def _history_for(others: Sequence[Any]) -> list[Any]:
    """Keras's history, if the script has none: Keras adds its own behind ours, which would then be emptied too late."""
    kind = keras().callbacks.History
    return [] if any(isinstance(each, kind) for each in others) else [kind()]
