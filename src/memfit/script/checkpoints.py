"""The callback that takes snapshots of a `fit`, and takes a `fit` up where another process has left it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from memfit.errors import InputError
from memfit.framework import as_keras_callback
from memfit.script.fit_state import FitState, known, put_back
from memfit.script.folder import say_no_snapshot
from memfit.script.words import say
from memfit.train.snapshot import restore_snapshot, take_snapshot

# A snapshot may take this share of the time since the last.
_SHARE = 0.02

Keep = Callable[[FitState], object]


class Pace:
    """Says when a snapshot is due: as often as costs little, or as was asked for.

    Args:
        seconds: How often; `None` is as often as costs little.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._cost = 0.0
        self._last = time.perf_counter()

    def due(self) -> bool:
        """Whether one is due."""
        wanted = self._cost / _SHARE if self._seconds is None else self._seconds
        return time.perf_counter() - self._last >= wanted

    def took(self, began: float) -> None:
        """One was taken, since this moment of `time.perf_counter`."""
        self._last = time.perf_counter()
        self._cost = self._last - began


class Checkpoints:
    """Takes snapshots at the ends of epochs, within them where the data come in the same order again, and at the end.

    It has to be the last callback: it keeps what the others know, and gives it back after they have begun anew.

    Args:
        others: The script's callbacks.
        keep: Where snapshots go.
        pace: When they are due.
        resumed: Where to begin; `None` is at the beginning.
        complete: Whether the model and its optimizers hold all that training changes, so that a snapshot is of use.
    """

    # Keras sets these.
    model: Any
    params: Any

    def __new__(cls, *_arguments: Any, **_settings: Any) -> "Checkpoints":
        """A Keras callback like any other."""
        plain: Any = cls
        made: Checkpoints = object.__new__(as_keras_callback(plain))
        return made

    def __init__(
        self,
        others: Sequence[Any],
        keep: Keep,
        pace: Pace,
        *,
        resumed: FitState | None,
        complete: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__()
        self._complete = complete
        self._others, self._keep, self._pace = others, keep, pace
        self._resumed = resumed
        self._epoch = 0 if resumed is None else resumed.epoch
        self._passed_over: int | None = None
        self._train_function: Any = None
        self.order_repeats = False
        """Whether the data come in the same order again."""
        self.restored = False
        """Whether the model is where `resumed` has it."""

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Put back what another process has left."""
        if self._resumed is None:
            return
        try:
            self._restore(self._resumed)
        except InputError as error:
            say(f"training starts from the beginning, since the snapshot does not match: {error}")
            self._resumed = None
            return
        self.restored = True
        # As Keras's own BackupAndRestore does, whose position is another one.
        self.model._initial_epoch = self._resumed.epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Pass over the batches that are done."""
        self._epoch = epoch
        state = self._resumed
        if state is not None and state.epoch == epoch and state.batch:
            self._pass_over(state.batch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A snapshot within an epoch; at a step's end, Keras would wait for the device after every step."""
        if self._passed_over is not None:
            if self._passed_over == 0:
                self._all_passed_over()
        elif batch and self.order_repeats and self._pace.due():
            self._take(self._epoch, batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A snapshot between epochs."""
        # Where training stops here, the last snapshot is that of the end.
        if self._pace.due() and not self.model.stop_training:
            self._take(epoch + 1, 0)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """A snapshot of the end."""
        if self.restored:
            self.model._initial_epoch = None
        if self._pace.due() and not self.restored_to_the_end:
            self._take(self._epoch + 1, 0, finished=True)

    @property
    def restored_to_the_end(self) -> bool:
        """Whether there was nothing left to do."""
        return self.restored and self._resumed is not None and self._resumed.finished

    def _take(self, epoch: int, batch: int, *, finished: bool = False) -> None:
        """Take a snapshot; one that fails costs the snapshot, never the training."""
        began = time.perf_counter()
        try:
            if not self._complete():
                raise InputError("the train step changes variables that neither the model nor its optimizers hold.")
            state = FitState(
                snapshot=take_snapshot(self.model),
                epoch=epoch,
                batch=batch,
                finished=finished,
                callbacks=tuple(known(each) for each in self._others),
                history=known(self.model.history),
            )
            self._keep(state)
        except Exception as error:  # noqa: BLE001 (host memory, the disk, and code of the script's callbacks)
            say_no_snapshot(error)
        self._pace.took(began)

    def _restore(self, state: FitState) -> None:
        restore_snapshot(self.model, state.snapshot)
        put_back(self._others, state.callbacks)
        put_back([self.model.history], [state.history])

    def _pass_over(self, batches: int) -> None:
        """Have Keras take so many batches and do nothing with them."""
        model = self.model
        self._passed_over, self._train_function = batches, model.train_function

        def pass_over(iterator: Any) -> Any:
            for _ in range(min(self._passed_over or 0, model.steps_per_execution)):
                next(iterator)
                self._passed_over = (self._passed_over or 0) - 1
            return model.get_metrics_result()

        model.train_function = pass_over

    def _all_passed_over(self) -> None:
        """Go on: callbacks have seen these batches twice now, and metrics were reset when the epoch began."""
        self.model.train_function, self._passed_over = self._train_function, None
        if self._resumed is not None:
            self._restore(self._resumed)
