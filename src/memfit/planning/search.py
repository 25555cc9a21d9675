"""The search for the fastest change that fits: over steps as data, without TensorFlow.

Which candidates there are does not depend on the budget, except that superseded bases, which are slower, are looked at
last; the answer is the fastest whose simulated peak fits. So a smaller budget never gives a faster answer, nor one with
a larger peak.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from memfit.estimation.graph import NO_LIMIT, GraphModel
from memfit.estimation.regime import Regime
from memfit.estimation.workspace import Workspace, cpu_workspace, steady_workspace
from memfit.hardware.catalog import GPU
from memfit.planning.cost import CostModel, StepCost
from memfit.planning.pieces import pieces
from memfit.planning.placement import Outcome, Segments, placements
from memfit.planning.simulate import simulate
from memfit.techniques.remat_step import CalledStep, recomputed
from memfit.techniques.technique import GRADES, Grade
from memfit.trace.step import Step, variable_bytes

_MOST_PIECES = 80
_LIMITS, _ROUNDS = 20, 2
# What is roughly this far above the budget is not replayed: that takes a second.
_ROUGHLY_SHARE = 0.85
_FEW = 4


@dataclass(frozen=True, eq=False)
class Base:
    """A traced step of the model with techniques that change its operations."""

    techniques: Mapping[str, Any]
    grade: Grade
    called: CalledStep
    peak: int
    """Its peak as it was predicted in the regime, to which simulated peaks are scaled."""
    superseded: bool = False
    """Whether another base is as exact and faster: this one is looked at only where that one does not fit."""
    saved: int = 0
    """Bytes of variables it has fewer than the step."""

    @property
    def fixed(self) -> int:
        """What does not follow the batch."""
        return sum(variable.bytes for variable in self.called.step.variables)


@dataclass(frozen=True)
class Candidate:
    """One way to train: a base, its recomputed segments and its slices."""

    base: int
    segments: Segments
    micro_batch: int | None
    grade: Grade
    seconds: float


@dataclass
class Search:
    """All candidates of a model at a batch size on a card.

    Args:
        batch: The batch size.
        gpu: The card.
        regime: Whether XLA compiles the step.
        slices: How exact it is to work on slices of the batch; `None` if the model cannot.
        starts: Segments to try besides those found here; `None` if the model is no graph of layers.
        bases: The steps that were traced; the first is the plain one. More may be added.
        resident: Bytes of data that lie on the device all the time.
        passes: How often each slice runs forward: twice where the loss mixes the samples of a batch.
    """

    batch: int
    gpu: GPU
    regime: Regime
    slices: Grade | None
    starts: Sequence[Segments] | None
    bases: list[Base]
    resident: int = 0
    passes: int = 1
    _of_base: dict[int, list[Candidate]] = field(default_factory=dict)
    _steps: dict[tuple[CalledStep, Segments], tuple[Step, StepCost]] = field(default_factory=dict)
    _outcomes: dict[tuple[CalledStep, Segments], Outcome] = field(default_factory=dict)
    _peaks: dict[tuple[CalledStep, Segments, int], int] = field(default_factory=dict)

    @cached_property
    def plain(self) -> Candidate:
        """Nothing changed."""
        return Candidate(0, (), None, "exact", self._outcome(self.bases[0], ()).seconds)

    def candidates(self, grade: Grade, *, superseded: bool = False) -> list[Candidate]:
        """All ways to train that are as exact as this, fastest first; of superseded bases the plain step only.

        Args:
            grade: How exact they have to be.
            superseded: Look at everything.
        """
        found = [
            each
            for at, base in enumerate(self.bases)
            if GRADES.index(base.grade) <= GRADES.index(grade)
            for each in self._ways(at, all_of_them=superseded or not base.superseded)
            if GRADES.index(each.grade) <= GRADES.index(grade)
        ]
        return sorted(found, key=lambda each: (each.seconds, GRADES.index(each.grade), len(each.segments)))

    def _ways(self, at: int, *, all_of_them: bool) -> list[Candidate]:
        if at in self._of_base:
            return self._of_base[at]
        if not all_of_them:
            return [next(self._sliced(at, ()))]
        self._of_base[at] = [each for segments in self._segments(at) for each in self._sliced(at, segments)]
        return self._of_base[at]

    def fastest(self, budget: int, grade: Grade, *, besides: Sequence[Candidate] = ()) -> Candidate | None:
        """The fastest way that fits a budget.

        Args:
            budget: Bytes.
            grade: How exact it has to be.
            besides: Candidates that were found not to fit after all.
        """
        for superseded in (False, True):
            ways = self.candidates(grade, superseded=superseded)
            found = next((each for each in ways if each not in besides and self._fits(each, budget)), None)
            if found is not None or not any(base.superseded for base in self.bases):
                return found
        return None

    def smallest(self, grade: Grade) -> Candidate:
        """The way with the smallest peak."""
        few = sorted(self.candidates(grade, superseded=True), key=self.roughly)[:_FEW]
        return min(few, key=self.peak)

    def front(self, grade: Grade) -> list[Candidate]:
        """The ways that no other beats in both time and peak, fastest first."""
        found: list[Candidate] = []
        least = 2**63
        for candidate in self.candidates(grade):
            if self.roughly(candidate) * _ROUGHLY_SHARE < least and self.peak(candidate) < least:
                least = self.peak(candidate)
                found.append(candidate)
        return found

    def peak(self, candidate: Candidate) -> int:
        """Its peak in bytes, replayed on the allocator."""
        base = self.bases[candidate.base]
        size = candidate.micro_batch or self.batch
        beside = 0 if candidate.micro_batch is None else self._beside_slices(candidate)
        return self._scaled(self._replayed(base, candidate.segments, size) + beside, base)

    def peak_at(self, candidate: Candidate, batch: int) -> int:
        """The peak the same way would have at another batch size."""
        base = self.bases[candidate.base]
        return self._scaled(self._replayed(base, candidate.segments, batch), base)

    def largest_batch(self, budget: int, grade: Grade) -> int:
        """The largest batch below this one that fits a budget whole, in the smallest way there is."""
        whole = [each for each in self.front(grade) if each.micro_batch is None]
        smallest = min(whole, key=self.peak)
        low, high = 0, self.batch
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.peak_at(smallest, middle) <= budget else (low, middle)
        return low

    def slowdown(self, candidate: Candidate) -> float:
        """The time of a step against the plain one: 0.12 is 12 % more."""
        return candidate.seconds / self.plain.seconds - 1

    def like(self, candidate: Candidate, *, segments: Segments, micro_batch: int | None) -> Candidate:
        """The same base with other segments and slices."""
        ways = self._sliced(candidate.base, segments)
        return next(each for each in ways if each.micro_batch == micro_batch)

    def _fits(self, candidate: Candidate, budget: int) -> bool:
        return self.roughly(candidate) * _ROUGHLY_SHARE <= budget and self.peak(candidate) <= budget

    def roughly(self, candidate: Candidate) -> float:
        """The peak without the allocator, and in slices as that of the whole batch scales down."""
        base = self.bases[candidate.base]
        peak: float = self._outcome(base, candidate.segments).peak
        if candidate.micro_batch is not None:
            share = candidate.micro_batch / self.batch
            peak = base.fixed + (peak - base.fixed) * share + self._beside_slices(candidate)
        return self._scaled(int(peak), base)

    def _replayed(self, base: Base, segments: Segments, batch: int) -> int:
        key = (base.called, segments, batch)
        if key not in self._peaks:
            step, _ = self.step_of(base, segments)
            model = GraphModel(step, None if step.device == "CPU" else self.gpu)
            found = model.predict(batch, limit=NO_LIMIT, growth=False, resident=self.resident, band=False)
            self._peaks[key] = found.replay.steady_peak
        return self._peaks[key]

    def _scaled(self, peak: int, base: Base) -> int:
        """From the executor's bytes to the regime's."""
        plain = self._replayed(base, (), self.batch)
        scale = (base.peak - base.fixed) / max(1, plain - base.fixed)
        return int(base.fixed + (peak - base.fixed) * scale) - base.saved

    def _beside_slices(self, candidate: Candidate) -> int:
        """Gradients of a slice and their sums, which wait for its end, and the samples that wait for their turn."""
        step = self.bases[candidate.base].called.step
        waiting = self.batch - (candidate.micro_batch or self.batch)
        inputs = [tensor for at in step.input_ops for tensor in step.ops[at].outputs]
        return 2 * variable_bytes(step.variables, "parameter") + sum(each.bytes(waiting) or 0 for each in inputs)

    def _segments(self, at: int) -> list[Segments]:
        """Placements of which no other is better in both time and peak."""
        base = self.bases[at]
        if self.starts is None:
            return [()]
        cost = self.step_of(base, ())[1]
        parts = pieces(base.called, self.batch, cost, self._workspace(base), most=_MOST_PIECES)
        found = placements(parts, lambda segments: self._outcome(base, segments), limits=_LIMITS, rounds=_ROUNDS)
        every = {(): None} | dict.fromkeys(found) | dict.fromkeys(self.starts)
        chosen: list[Segments] = []
        least = 2**63
        for segments in sorted(every, key=lambda each: (self._outcome(base, each).seconds, len(each))):
            if self._outcome(base, segments).peak < least:
                least = self._outcome(base, segments).peak
                chosen.append(segments)
        return chosen

    def _sliced(self, at: int, segments: Segments) -> Iterator[Candidate]:
        base = self.bases[at]
        cost = self.step_of(base, segments)[1]
        yield Candidate(at, segments, None, base.grade, cost.seconds(self.batch))
        if self.slices is None:
            return
        grade = max(base.grade, self.slices, key=GRADES.index)
        size = self.batch
        while size > 1:
            size = (size + 1) // 2
            yield Candidate(at, segments, size, grade, cost.seconds(size, -(-self.batch // size), self.passes))

    def _outcome(self, base: Base, segments: Segments) -> Outcome:
        key = (base.called, segments)
        if key not in self._outcomes:
            step, cost = self.step_of(base, segments)
            found = simulate(step, self.batch, self._workspace(base))
            call = base.called.call_of[base.called.original(step.ops[found.op])]
            self._outcomes[key] = Outcome(found.peak, call, cost.seconds(self.batch))
        return self._outcomes[key]

    def _workspace(self, base: Base) -> Workspace:
        on_cpu = base.called.step.device == "CPU"
        return cpu_workspace if on_cpu else steady_workspace(self.gpu.compute_capability)

    def step_of(self, base: Base, segments: Segments) -> tuple[Step, StepCost]:
        """A base's step with segments recomputed, and what it costs."""
        key = (base.called, segments)
        if key not in self._steps:
            step = recomputed(base.called, segments)
            if segments:
                again = [base.called.original(op) for op in step.ops[len(base.called.step.ops) :]]
                cost = self.step_of(base, ())[1].with_again(again)
            else:
                cost = CostModel(self.gpu, self.regime).of(step, self.batch)
            self._steps[key] = (step, cost)
        return self._steps[key]
