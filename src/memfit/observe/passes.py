"""One pass over the data, seen step by step: an epoch of training, an evaluation, a prediction."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from memfit.hardware.device_reader import DeviceReader
from memfit.observe import feed
from memfit.observe.events import Fragmentation, Phase, Retrace
from memfit.observe.profiler import ProfiledStep, free_at_peak
from memfit.observe.recording import Recording
from memfit.observe.retraces import RetraceWatch
from memfit.observe.timeline import make_timeline, names_of

# As `memfit.measure` does.
_WARM_UP = 3
# The first steps of a pass are looked at one by one; later, looking may take this share of the time.
_ALL_OBSERVED, _LOOKING_SHARE, _MOST_AT_ONCE = 16, 0.015, 32


@dataclass(frozen=True)
class Watch:
    """What a pass observes with."""

    recording: Recording
    device: DeviceReader
    retraces: RetraceWatch
    profiled: "ProfiledSteps"


@dataclass(frozen=True)
class ProfiledSteps:
    """Which steps to profile, in each phase."""

    after_warm_up: int = 0
    """So many executions of the step function, once three have passed: until then it is traced and tuned."""
    numbers: frozenset[int] = frozenset()
    """These steps, counted from 1."""

    def wants(self, first: int, count: int) -> bool:
        """Whether to profile an execution of `count` steps from the step `first` on."""
        warm = _WARM_UP * count
        if warm < first <= warm + self.after_warm_up * count:
            return True
        return bool(self.numbers) and not self.numbers.isdisjoint(range(first, first + count))


@dataclass(frozen=True)
class _Executed:
    """One execution of the step function."""

    steps: int
    seconds: float
    when: float
    in_use: int | None
    peak: int | None


class Pass:
    """Observes the steps of a pass, and writes them.

    A step is over when the next one begins. Keras would say so at its end as well, but then it waits for the device
    after every step (`CallbackList._configure_async_dispatch`). So the device may lag behind by a step or two, and
    times are right on average; memory is counted when a step is handed to the device, and is that of the step.

    Args:
        watch: What to observe with.
        model: The model.
        phase: What is done.
        batches: How many batches there will be, where it is known.
    """

    def __init__(self, watch: Watch, model: Any, phase: Phase, batches: int | None) -> None:
        self._watch = watch
        self._model = model
        self._phase = phase
        self._batches = batches
        self._per_execution = max(1, int(getattr(model, "steps_per_execution", 1) or 1))
        # To Keras every execution is full. How many steps the last one had, nobody says where nobody knows how many
        # batches there are: it is held back until the optimizer's count tells.
        self._uncertain = self._per_execution > 1 and batches is None
        self._updates_before = self._updates()
        self._held: _Executed | None = None
        self._begun_with = 0
        self._first_running = 1
        self._begun = False
        self._last_begun = 0
        self._next_observed = 0
        self._running = False
        self._results_before: int | None = None
        self._profiler: ProfiledStep | None = None
        self._not_ours = 0.0
        """The seconds the profiler took."""
        self._lasted = 0.0
        """The seconds up to the last step."""
        self._steps = 0
        self._peak: int | None = None
        self._started = self._step_began = time.perf_counter()
        watch.retraces.look(model, phase)

    def step_begins(self, batch: int) -> None:
        """An execution of the step function begins with this batch, counted from 0; the one before is over."""
        self._last_begun = batch
        if batch < self._next_observed:
            return
        came = time.perf_counter()
        if not self._begun:
            # Filling a pipeline's buffers is no step's time.
            self._begun, self._started = True, came
        self.step_ended(batch)
        self._begun_with = batch
        self._first_running = self._watch.recording.steps(self._phase) + 1 + (self._held.steps if self._held else 0)
        if self._watch.profiled.wants(self._first_running, self._per_execution):
            self._start_profiler()
        self._watch.device.start()
        self._results_before = feed.latest_results(self._phase)
        self._running = True
        self._step_began = time.perf_counter()
        self._look_less_often(batch, self._step_began - came)

    def _look_less_often(self, batch: int, seconds: float) -> None:
        """Take several steps for one where looking at each would take a share of their time that is felt."""
        if self._steps < _ALL_OBSERVED * self._per_execution or self._batches is None or self._profiler is not None:
            return
        step_seconds = (self._lasted / self._steps) * self._per_execution
        executions = min(_MOST_AT_ONCE, math.ceil(seconds / (_LOOKING_SHARE * step_seconds)))
        at_once = executions * self._per_execution
        if not self._watch.profiled.wants(self._first_running, at_once):
            self._next_observed = batch + at_once

    def step_ended(self, next_batch: int | None = None) -> None:
        """The execution that is running, if one is, has ended; the next batch is this one, if there is one."""
        if not self._running:
            return
        self._running = False
        if self._profiler is not None:
            self._watch.device.wait()
        now = time.perf_counter()
        steps = self._steps_executed(next_batch)
        executed = _Executed(steps, now - self._step_began, now, *self._watch.device.read())
        self._lasted = now - self._started - self._not_ours
        if self._profiler is not None and steps:
            profiler, self._profiler = self._profiler, None
            self._write_timeline(profiler, executed.seconds)
        if self._uncertain and steps:
            self._write_held(None)
            self._held = executed
        elif not self._uncertain:
            self._write(executed)
        self._look_for_retraces()

    def _steps_executed(self, next_batch: int | None) -> int:
        if next_batch is not None:
            return next_batch - self._begun_with
        before, now = self._results_before, feed.latest_results(self._phase)
        if before is not None and now in (None, before):
            # It failed, or Keras began it and then found no data left.
            return 0
        executed = self._last_begun - self._begun_with + self._per_execution
        return executed if self._batches is None else min(executed, self._batches - self._begun_with)

    def finish(self, logs: Any) -> None:
        """The pass is over."""
        self.step_ended()
        if self._phase == "predict":
            # Keras waits for the results a moment later.
            self._watch.device.wait()
            self._lasted = time.perf_counter() - self._started - self._not_ours
        updates = self._updates()
        if updates is not None and self._updates_before is not None:
            self._write_held(updates - self._updates_before - self._steps)
        else:
            self._write_held(None)
        self.abandon()
        self._watch.recording.epoch_done(self._phase, self._steps, self._lasted, self._peak, logs)

    def abandon(self) -> None:
        """Stop the profiler where it still runs: after a step that failed, or that found no data left."""
        self._running = False
        if self._profiler is not None:
            self._profiler.stop(self._watch.device.name)
            self._profiler = None

    def _write(self, executed: _Executed) -> None:
        if executed.steps < 1:
            return
        self._watch.recording.step(
            self._phase, executed.steps, executed.seconds, executed.in_use, executed.peak, when=executed.when
        )
        self._steps += executed.steps
        if executed.peak is not None:
            self._peak = executed.peak if self._peak is None else max(self._peak, executed.peak)

    def _write_held(self, steps: int | None) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._write(held if steps is None else replace(held, steps=steps))

    def _look_for_retraces(self) -> None:
        noticed = self._watch.retraces.look(self._model, self._phase)
        if noticed is not None:
            recording, step = self._watch.recording, self._first_running
            recording.write(
                Retrace(recording.now(), self._phase, step, noticed.function, noticed.reason, noticed.count)
            )

    def _updates(self) -> int | None:
        """How often the optimizer was applied: asked only where nothing else says how many steps were executed."""
        if self._phase != "train" or not self._uncertain:
            return None
        iterations = getattr(getattr(self._model, "optimizer", None), "iterations", None)
        return None if iterations is None else int(iterations)

    def _start_profiler(self) -> None:
        began = time.perf_counter()
        self._watch.device.wait()
        self._profiler = ProfiledStep()
        self._not_ours += time.perf_counter() - began

    def _write_timeline(self, profiler: ProfiledStep, seconds: float) -> None:
        """Read and reduce the profile; the time that takes is nobody's."""
        began = time.perf_counter()
        recording = self._watch.recording
        profile = profiler.stop(self._watch.device.name)
        if profile is not None:
            names = names_of(self._model, self._phase)
            line = make_timeline(
                profile,
                names,
                at=recording.now(),
                phase=self._phase,
                step=self._first_running,
                seconds=round(seconds, 6),
            )
            if line is not None:
                recording.write(line)
            if self._watch.device.takes_all_at_once and (free := free_at_peak(profile)) is not None:
                recording.write(Fragmentation(recording.now(), *free))
        self._not_ours += time.perf_counter() - began
