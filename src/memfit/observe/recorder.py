"""`memfit.Recorder`: the callback that records a run."""

import os
import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memfit.errors import InputError
from memfit.framework import as_keras_callback
from memfit.hardware.device_reader import DeviceReader
from memfit.observe import feed
from memfit.observe.events import Event, Model, Outcome, OutOfMemory, Phase, Recovery
from memfit.observe.live import live_findings
from memfit.observe.machine import describe_run
from memfit.observe.oom_message import who_asked
from memfit.observe.passes import Pass, ProfiledSteps, Watch
from memfit.observe.recording import Recording
from memfit.observe.retraces import RetraceWatch
from memfit.observe.writer import record_path, refuse_unwritable

if TYPE_CHECKING:
    from pathlib import Path


# Looking through the process for leaks may take this share of the time.
_LOOKING_SHARE = 0.02


class Recorder:
    """Record what a run does with memory: a callback for `fit`, `evaluate` and `predict`.

    The file it writes can be read at any moment, also after the process was killed. It changes nothing of what is
    trained, and waits for the device only where Keras does and before profiled steps. While it records, TensorFlow's
    own peak counter (`tf.config.experimental.get_memory_info`) starts anew at every step.

    Args:
        path: The file to write, or a folder for it; `None` is `run-DATE-TIME-PID.memfit.jsonl` in the current folder.
        profile_steps: The steps of which every allocation is recorded, counted from 1 in each phase; a number is so
            many after the first three (executions of `steps_per_execution` steps). They need TensorFlow's profiler
            and take longer; 0 is none.
        estimate: What was predicted for the model (`memfit.estimate`), to be shown beside what happens.
        plan: The plan that is applied.
        force: Whether to replace a file that is there.
        resume: Whether to go on with a file that is there.

    Raises:
        InputError: If the file exists or cannot be written, or a step to profile is none.

    Example:
        ```python
        model.fit(x, y, validation_data=(x, y), epochs=3, callbacks=[memfit.Recorder()])
        ```
    """

    # Keras sets these.
    model: Any
    params: Any

    def __new__(cls, *_arguments: Any, **_settings: Any) -> "Recorder":
        """A Keras callback like any other, but one whose import does not import Keras."""
        plain: Any = cls
        made: Recorder = object.__new__(as_keras_callback(plain))
        return made

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        profile_steps: int | Iterable[int] = 1,
        estimate: Any = None,
        plan: Any = None,
        force: bool = False,
        resume: bool = False,
    ) -> None:
        super().__init__()
        self.path: Path = record_path(path)
        """The file that is written."""
        self._resume = resume and self.path.exists()
        refuse_unwritable(self.path, force=force or self._resume)
        self._force = force
        self._profiled = _checked_steps(profile_steps)
        self.describe(estimate=estimate, plan=plan)
        self._found: set[str] = set()
        self._next_look = 0.0
        self._watch: Watch | None = None
        self._passes: dict[Phase, Pass] = {}
        self._models: weakref.WeakKeyDictionary[Any, Model] = weakref.WeakKeyDictionary()

    def describe(self, *, estimate: Any = None, plan: Any = None, batch_size: int | None = None) -> None:
        """Say what was predicted of the model that is trained next, which plan is applied to it, and its batch size."""
        self._batch_size = batch_size
        self._estimate = None if estimate is None else estimate.to_dict()
        self._plan = None if plan is None else plan.to_dict()

    def write(self, event: Event) -> None:
        """Append a line from elsewhere, such as a finding."""
        self._begun().recording.write(event)

    def now(self) -> float:
        """Seconds since the recording began: the `at` of a line."""
        return self._begun().recording.now()

    def close(
        self, outcome: Outcome | None = None, *, exit_code: int | None = None, error: BaseException | None = None
    ) -> None:
        """Write how the run ended; nothing is recorded afterwards.

        Without this call it happens when the process ends, or when nobody holds the recorder any more.
        """
        for each in self._passes.values():
            each.step_ended()
        self._abandon()
        self._begun().recording.close(outcome, exit_code=exit_code, error=error)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """A fit begins."""
        self._abandon()
        self._begun().recording.begin("train")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """An epoch begins."""
        self._begun().recording.epoch = epoch + 1
        self._begin_pass("train")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A step of training begins."""
        self._step_begins("train", batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """An epoch is over, its validation too."""
        self._finish_pass("train", logs)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """The fit is over."""
        recording = self._begun().recording
        recording.finish("train")
        recording.epoch = None
        if recording.now() >= self._next_look:
            self._look_through_the_process()

    def on_failure(self, error: BaseException) -> None:
        """A fit, an evaluation or a prediction raised this error; it is recorded where memory ran out."""
        self._begun().recording.failed(error)

    def on_recovery(self, event: Any) -> None:
        """Memory ran out, and `memfit.fit` retried the batch with less memory."""
        recording = self._begun().recording
        where = {"at": recording.now(), "phase": event.phase, "epoch": recording.epoch, "step": event.step}
        recording.write(OutOfMemory(**where, message=event.message, **who_asked([event.error])))
        recording.write(Recovery(**where, what=event.what, techniques=event.techniques, seconds=event.seconds))

    def restarted(self, what: str, techniques: dict[str, Any]) -> None:
        """The process died when memory ran out, and this one continues with a plan that needs less."""
        recording = self._begun().recording
        now = recording.now()
        recording.write(
            Recovery(
                at=now,
                phase="train",
                what=what,
                techniques=techniques,
                seconds=round(now - recording.began_at, 6),
                restart=True,
            )
        )

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """An evaluation begins, in a fit or on its own."""
        if "train" in self._passes:
            self._passes["train"].step_ended()
        self._begun().recording.begin("validation")
        self._begin_pass("validation")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A step of an evaluation begins."""
        self._step_begins("validation", batch)

    def on_test_end(self, logs: Any = None) -> None:
        """An evaluation is over."""
        self._finish_pass("validation", logs)
        self._begun().recording.finish("validation")

    def on_predict_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """A prediction begins."""
        self._begun().recording.begin("predict")
        self._begin_pass("predict")

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """A step of a prediction begins."""
        self._step_begins("predict", batch)

    def on_predict_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """A prediction is over."""
        self._finish_pass("predict", None)
        self._begun().recording.finish("predict")

    def _begun(self) -> Watch:
        """What is observed with; the file is made when it is first needed, after TensorFlow has its devices."""
        if self._watch is None:
            device = DeviceReader()
            recording = Recording(self.path, describe_run(device), force=self._force, resume=self._resume)
            self._watch = Watch(recording, device, RetraceWatch(), self._profiled)
            # Not `atexit`, which would keep this and its model alive to the end.
            weakref.finalize(self, recording.close)
        return self._watch

    def _begin_pass(self, phase: Phase) -> None:
        self._passes[phase] = Pass(self._begun(), self.model, phase, self._batches(phase))
        self._write_model(phase)

    def _step_begins(self, phase: Phase, batch: int) -> None:
        # There is none after `close`.
        if phase in self._passes:
            self._passes[phase].step_begins(batch)

    def _finish_pass(self, phase: Phase, logs: Any) -> None:
        if phase in self._passes:
            self._passes.pop(phase).finish(logs)
            self._write_model(phase)

    def _look_through_the_process(self) -> None:
        """Write what is found in it now, unless it was found before."""
        recording = self._begun().recording
        began = recording.now()
        for finding in live_findings(self.model, at=began):
            if finding.id not in self._found:
                self._found.add(finding.id)
                recording.write(finding)
        now = recording.now()
        # It takes half a second, and a script may fit a thousand times.
        self._next_look = now + (now - began) / _LOOKING_SHARE

    def _batches(self, phase: Phase) -> int | None:
        """How many batches a pass has, where Keras knows it."""
        if phase == "validation" and "train" in self._passes:
            # What Keras says to callbacks is the number of the training's.
            return getattr(getattr(self.model, "_eval_epoch_iterator", None), "num_batches", None)
        return (self.params or {}).get("steps")

    def _write_model(self, phase: Phase) -> None:
        """Write what is known of the model, once and when more is known."""
        recording, model = self._begun().recording, self.model
        line = Model(
            at=0,
            model=str(model.name),
            batch_size=feed.batch_size() or self._batch_size,
            regime="xla" if model.jit_compile else "graph",
            parameters=int(model.count_params()) if model.built else None,
            estimate=self._estimate,
            plan=self._plan,
        )
        written = self._models.get(model)
        # Its validation may have another batch size, and a model's is that of its training.
        if phase != "train" and written is not None:
            line = replace(line, batch_size=written.batch_size)
        if line != written:
            self._models[model] = line
            recording.write(replace(line, at=recording.now()))

    def _abandon(self) -> None:
        """Forget passes that failed and so never ended."""
        for each in self._passes.values():
            each.abandon()
        self._passes.clear()


def _checked_steps(steps: int | Iterable[int]) -> ProfiledSteps:
    if isinstance(steps, int) and not isinstance(steps, bool) and steps >= 0:
        return ProfiledSteps(after_warm_up=steps)
    wanted = list(steps) if isinstance(steps, Iterable) and not isinstance(steps, str) else [steps]
    bad = [each for each in wanted if isinstance(each, bool) or not isinstance(each, int) or each < 1]
    if bad:
        raise InputError(
            f"profile_steps={steps!r} must be how many steps to profile, or their numbers counted from 1, such as "
            f"(4, 100); got {bad[0]!r}."
        )
    return ProfiledSteps(numbers=frozenset(wanted))
