"""A recording under way: steps, epochs and what else happens, numbered, timed and written. Needs no TensorFlow."""

import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from numbers import Real
from pathlib import Path
from typing import Any

from memfit.errors import InputError
from memfit.hardware.out_of_memory import out_of_memory, with_causes
from memfit.observe.events import End, Epoch, Event, Outcome, OutOfMemory, Phase, Run
from memfit.observe.growth import StepBlocks
from memfit.observe.oom_message import who_asked
from memfit.observe.record import Record, read_record
from memfit.observe.writer import RecordWriter, UnwritableError

# Reading it takes 20 microseconds, a fifth of what a line took; it does not change faster than this.
_HOST_SECONDS = 0.05
PHASES: tuple[Phase, ...] = ("train", "validation", "predict")


class Recording:
    """Writes one run's record.

    Args:
        path: The file.
        run: Its first line.
        force: Whether to replace a file that is there.
        resume: Whether to go on with a file that is there.
    """

    def __init__(self, path: Path, run: Run, *, force: bool = False, resume: bool = False) -> None:
        self.path = path
        """The file."""
        self._closed = False
        self._writer: RecordWriter | None = None
        before: Record | None = None
        try:
            before = read_record(path) if resume else None
            self._writer = RecordWriter(path, None if before else run, force=force)
        except InputError as error:
            if not resume and not isinstance(error, UnwritableError):
                raise
            self._stop(str(error))
        self.began_at = _last_moment(before)
        """When the recording was left that is resumed."""
        self._began = time.perf_counter() - _seconds_since_start(before)
        self._process = os.getpid()
        self._blocks = {phase: StepBlocks(phase, _steps_before(before, phase)) for phase in PHASES}
        self._last_step = dict.fromkeys(PHASES, self._began)
        self._running: list[Phase] = []
        self._host_read: tuple[float, int | None] = (-math.inf, None)
        self._noted: str | None = None
        self.epoch: int | None = None
        """The epoch of a fit that is under way."""

    @property
    def closed(self) -> bool:
        """Whether nothing is written any more."""
        return self._closed

    def now(self) -> float:
        """Seconds since the recording began, as `at` in every line."""
        return self.at(time.perf_counter())

    def at(self, when: float) -> float:
        """The `at` of a moment of `time.perf_counter`."""
        return round(when - self._began, 6)

    def steps(self, phase: Phase) -> int:
        """How many steps of a phase there were so far."""
        return self._blocks[phase].steps

    def write(self, event: Event) -> None:
        """Append a line; nothing after the end, and nothing from a forked process.

        A disk that is full ends the recording, not the training.
        """
        if self._closed or self._writer is None or os.getpid() != self._process:
            return
        try:
            self._writer.write(event)
        except OSError as error:
            self._stop(f"the record {self.path} ends here: {error.strerror}. What was recorded so far can be read.")

    def begin(self, phase: Phase) -> None:
        """A fit, an evaluation or a prediction begins; what of its kind never ended has failed, and was survived."""
        still = [] if phase == "train" else [each for each in self._running if each != phase]
        self._running = [*still, phase]

    def step(
        self, phase: Phase, steps: int, seconds: float, in_use: int | None, peak: int | None, *, when: float
    ) -> None:
        """One execution of the step function was over at this moment; see `StepBlocks.add`."""
        self._last_step[phase] = when
        if self._blocks[phase].add(steps, seconds, in_use, peak):
            self._write_block(phase)

    def epoch_done(
        self, phase: Phase, steps: int, seconds: float, peak: int | None, logs: Mapping[str, Any] | None
    ) -> None:
        """A pass over the data is over."""
        self.write(
            Epoch(
                at=self.now(),
                epoch=self.epoch,
                phase=phase,
                steps=steps,
                seconds=round(seconds, 6),
                peak_bytes=peak,
                logs=_numbers(logs),
            )
        )

    def finish(self, phase: Phase) -> None:
        """The fit, evaluation or prediction that `begin` named is over."""
        if phase in self._running:
            self._running.remove(phase)
        # Validation is over and over again during a fit, and a line may reach over its epochs.
        ended = PHASES if phase == "train" else () if self._running else (phase,)
        for each in ended:
            if self._blocks[each].partial_due():
                self._write_block(each)

    def close(
        self, outcome: Outcome | None = None, *, exit_code: int | None = None, error: BaseException | None = None
    ) -> None:
        """Write what is left and how it ended; a second call does nothing.

        Args:
            outcome: How it ended; `None` is what can be told from here.
            exit_code: What the process ends with, where it is known.
            error: What it failed with; `None` is what Python is ending with.
        """
        if self._closed or os.getpid() != self._process:
            return
        if error is None and not hasattr(sys, "ps1"):
            # What ended the program, where it is Python that ends; a prompt goes on after an error.
            error = getattr(sys, "last_value", None)
        if outcome is None:
            interrupted = isinstance(error, KeyboardInterrupt)
            outcome = "interrupted" if interrupted else "failed" if error or self._running else "finished"
        for phase in PHASES:
            self._write_block(phase)
        if (message := out_of_memory(error)) is not None:
            self._write_out_of_memory(message, error)
        text = " ".join(str(error).split())[:300] if error else None
        # `sys.exit` is not an error, but may follow from one.
        shown = error is not None and not isinstance(error, SystemExit)
        end = End(
            at=self.now(),
            outcome=outcome,
            exit_code=exit_code,
            error=f"{type(error).__name__}: {text}" if shown else None,
        )
        self.write(end)
        if self._writer is not None:
            self._writer.close()
        self._closed = True

    def failed(self, error: BaseException) -> None:
        """Write that memory ran out, if that is what this error says; the script may still catch it."""
        if (message := out_of_memory(error)) is not None:
            self._write_out_of_memory(message, error)

    def _stop(self, reason: str) -> None:
        """End the recording, not the training."""
        self._closed = True
        text = f"{reason} The run continues without a record."
        try:
            warnings.warn(text, stacklevel=3)
        except Warning:
            # The script turns warnings into errors, and this one is none of its own.
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"memfit: {text}\n")

    def _write_out_of_memory(self, message: str, error: BaseException | None) -> None:
        """Where memory ran out, in the phase that was under way; the same error is written once."""
        if message == self._noted:
            return
        self._noted = message
        phase = self._running[-1] if self._running else "train"
        asked = who_asked([str(each) for each in with_causes(error)])
        epoch = None if phase == "predict" else self.epoch
        self.write(OutOfMemory(self.now(), phase, epoch, self.steps(phase) + 1, message, **asked))

    def _write_block(self, phase: Phase) -> None:
        epoch = None if phase == "predict" else self.epoch
        line = self._blocks[phase].line(self.at(self._last_step[phase]), epoch, self._host())
        if line is not None:
            self.write(line)

    def _host(self) -> int | None:
        """The resident set, of this moment or a little earlier."""
        now = time.perf_counter()
        if now - self._host_read[0] > _HOST_SECONDS:
            self._host_read = now, resident_bytes()
        return self._host_read[1]


def _last_moment(record: Record | None) -> float:
    if record is None:
        return 0.0
    steps, epochs, recoveries = record.steps, record.epochs, record.recoveries
    return max((0.0, *(line.at for line in steps), *(line.at for line in epochs), *(line.at for line in recoveries)))


def _seconds_since_start(record: Record | None) -> float:
    """How long ago a record began; never less than what it has seen."""
    if record is None or record.run.started is None:
        return _last_moment(record)
    started = datetime.fromisoformat(record.run.started)
    return max(_last_moment(record), (datetime.now(timezone.utc) - started).total_seconds())


def _steps_before(record: Record | None, phase: Phase) -> int:
    lines = () if record is None else record.steps
    return max((line.first + line.count - 1 for line in lines if line.phase == phase), default=0)


def resident_bytes() -> int | None:
    """What this process holds of the host's memory; `None` where Linux does not say."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return None
    try:
        pages = os.read(descriptor, 128).split()[1]
    finally:
        os.close(descriptor)
    return int(pages) * resource.getpagesize()


def _numbers(logs: Mapping[str, Any] | None) -> dict[str, float] | None:
    return {name: float(value) for name, value in logs.items() if isinstance(value, Real)} if logs else None
