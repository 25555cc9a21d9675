"""What a run puts around Keras, and how its record begins and ends."""

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from functools import cached_property, wraps
from importlib import import_module
from inspect import BoundArguments, signature
from typing import TYPE_CHECKING, Any

from memfit.errors import MemfitError
from memfit.hardware.out_of_memory import out_of_memory
from memfit.script.checkpoints import Pace
from memfit.script.folder import RunFolder
from memfit.script.last_words import explain_at_the_end
from memfit.script.own_loop import watch_own_loops
from memfit.script.run_recorder import run_recorder
from memfit.script.sessions import Sessions
from memfit.script.settings import Settings
from memfit.script.watched_fit import Watch, WatchedFit, callbacks_added
from memfit.script.words import refuse, say

if TYPE_CHECKING:
    from memfit.observe.recorder import Recorder

_TRAINER = "keras.src.backend.tensorflow.trainer"
_Original = Callable[..., Any]
_Around = Callable[[_Original, BoundArguments], Any]


class Training:
    """The training of a script, from when it has imported Keras.

    Args:
        settings: What was asked for.
        folder: What is shared with the process that watches over this one.
    """

    def __init__(self, settings: Settings, folder: RunFolder) -> None:
        self._settings, self._folder = settings, folder
        self._process = os.getpid()
        self._thread = threading.local()
        self._fits = 0
        self._recorder: Recorder | None = None
        self._failed: tuple[Callable[[], Any], int | None, Any] = ((lambda: None), None, None)
        self._watch_keras()
        watch_own_loops(self._own_loop, settings.device_limit, lambda: getattr(self._thread, "inside", False))

    def script_ended(self, error: BaseException | None) -> None:
        """The script's last line is done, or this error has ended it."""
        # Threads of the script may still train; the record is closed after them.
        atexit.register(self._close_record, error)
        if error is None or isinstance(error, SystemExit) or out_of_memory(error) is None:
            # Memory that ran out earlier was the script's to deal with, and it has.
            self._folder.forget_progress()
        elif not self._is_restarted:
            model, batch, spec = self._failed
            explain_at_the_end(model(), batch, spec, self._settings)

    def _own_loop(self, text: str) -> None:
        self._folder.note_own_loop()
        say(text)

    @cached_property
    def _watch(self) -> Watch:
        """What is observed with; made at the first `fit`, when the script has said all it has to say about devices."""
        settings = self._settings
        died = self._folder.progress() if settings.restarts else None
        try:
            self._recorder = run_recorder(settings, self._folder)
            return Watch(self._folder, Sessions(settings), self._recorder, Pace(settings.snapshot_seconds), died)
        except MemfitError as error:
            refuse(error)

    @property
    def _is_restarted(self) -> bool:
        """Whether the supervisor will start the script again."""
        progress = self._folder.progress()
        again = progress is not None and progress.running and progress.smaller
        return again and self._settings.restarts < self._settings.most_restarts

    def _close_record(self, error: BaseException | None) -> None:
        if self._recorder is None or os.getpid() != self._process:
            return
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            self._recorder.close("failed" if code else "finished", exit_code=code, error=error)
        else:
            self._recorder.close(error=error, exit_code=0 if error is None else 1)

    def _watch_keras(self) -> None:
        """Put ourselves around what trains; nothing else of Keras is touched."""
        trainer = import_module(_TRAINER).TensorFlowTrainer
        for name, around in (("fit", self._fit), ("evaluate", self._observed), ("predict", self._observed)):
            setattr(trainer, name, self._wrapped(getattr(trainer, name), around))
        make_train_function = trainer.make_train_function

        @wraps(make_train_function)
        def prepared(model: Any, *args: Any, **kwargs: Any) -> Any:
            fit = getattr(self._thread, "fit", None)
            if fit is not None:
                fit.prepare()
            return make_train_function(model, *args, **kwargs)

        trainer.make_train_function = prepared

    def _wrapped(self, original: _Original, around: _Around) -> _Original:
        @wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            # Not what Keras calls inside of a fit, nor what a forked process of the script's does.
            if getattr(self._thread, "inside", False) or os.getpid() != self._process:
                return original(model, *args, **kwargs)
            try:
                arguments = signature(original).bind(model, *args, **kwargs)
            except TypeError:
                return original(model, *args, **kwargs)
            self._thread.inside = True
            try:
                return around(original, arguments)
            finally:
                self._thread.inside, self._thread.fit = False, None

        return call

    def _fit(self, original: _Original, arguments: BoundArguments) -> Any:
        self._fits += 1
        fit = self._thread.fit = WatchedFit(self._watch, self._fits, arguments)
        try:
            return fit.run(original)
        except Exception as error:
            self._failed = weakref.ref(arguments.args[0]), fit.batch, fit.spec
            self._watch.recorder.on_failure(error)
            raise

    def _observed(self, original: _Original, arguments: BoundArguments) -> Any:
        with callbacks_added(arguments, [self._watch.recorder]):
            try:
                return original(*arguments.args, **arguments.kwargs)
            except Exception as error:
                self._failed = weakref.ref(arguments.args[0]), None, None
                self._watch.recorder.on_failure(error)
                raise
