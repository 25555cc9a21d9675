"""One phase of a model (train, evaluate or predict) that can be asked for its peak at any batch size."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memfit.estimation.bfc import OutOfMemory
from memfit.estimation.composition import Composition, Kind, compose_graph, compose_xla
from memfit.estimation.graph import GraphModel
from memfit.estimation.xla.card import CardError, compile_on_card, is_here
from memfit.estimation.xla.compiled import CompiledStep
from memfit.estimation.xla.deviceless import XlaCompilationError, compile_for, missing_packages
from memfit.estimation.xla.hlo import LoweredStep, lower_to_hlo
from memfit.estimation.xla.steady import SteadyPeak, steady_peak, steady_peak_without_compiler
from memfit.estimation.xla.trials import trial_bytes
from memfit.estimation.xla.workspace import offered_kernels
from memfit.hardware.catalog import GPU
from memfit.hardware.scratch import leaves_fft_kernels_out
from memfit.trace.step import Step

# What the replays leave open: which convolution kernels autotuning picks, and how threads interleave.
_REPLAY_MARGIN = 0.05
# A step with operations of unknown size may need more, by nobody knows how much; this says so.
_UNKNOWN_MARGIN = 0.25
# Turns of a loop overlap in ways the replay does not follow, below and above: on an H200 a looped LSTM took 1.31 times
# its replay. On a CPU turns that wait are replayed, all or none of them: a sequence-to-sequence LSTM took 0.85 of the
# lowest replay.
_LOOP_MARGINS = {"GPU": (0.0, 0.4), "CPU": (0.1, 0.0)}
# A CPU's threads interleave in more ways than are replayed, and leave other free chunks: of 234 runs of 20 networks on
# two busy cores seven took 1.12 to 1.26 times the highest replay, the others at most 1.1 times.
_CPU_MARGIN = 0.1
# What the first step tries, as cuDNN lists it: 56 steps without a cap on an H200 took 0.78 to 1.07 times what was
# predicted, in the middle 1.00. Where cuDNN cannot be asked, kernels that transform nothing are unknown: up to 1.74
# times.
_FIRST_STEP_BAND, _FIRST_STEP_HIGH = (0.75, 1.1), 1.8
# In its first step XLA does not write all new weights over the old ones: 0.5 to 1.25 times the weights more in ten
# models on an H200, 0.1 to 0.5 times in ten others. The share between them moves the prediction by 1 % or less.
_FIRST_WEIGHTS, _FIRST_WEIGHTS_HIGH = 0.3, 1.3
# What XLA tries, as cuDNN lists it: 39 of 40 steps on an H200 took 0.92 to 1.33 times what was predicted, in the middle
# 1.0; one took a quarter, beside twelve other processes.
# Where cuDNN cannot be asked, up to 6.3 times the steady peak (a U-Net), but not without Fourier kernels.
_XLA_TRIALS_BAND, _XLA_AUTOTUNING_HIGH = (0.75, 1.35), 6.5
# Timing kernels again takes about the same: at most this many times, in five networks on an H200.
_TIMING_HIGH = 1.1
# A step compiled at another batch size and scaled by what of it follows the batch.
_SCALED_MARGIN = 0.04


@dataclass(frozen=True)
class Peak:
    """A predicted number of bytes with its band."""

    value: int
    low: int
    high: int


@dataclass(frozen=True)
class PhasePrediction:
    """What a phase reaches at one batch size on an allocator that grows, or under a limit."""

    steady: Peak
    first_step: Peak
    reserved: Peak
    composition: Composition
    method: str
    unknown_ops: tuple[str, ...] = ()


class PhaseModel(Protocol):
    """A phase of a model for a target."""

    def predict(self, batch: int, *, limit: int, growth: bool, resident: int, band: bool) -> PhasePrediction | None:
        """The peak at a batch size; `None` if it does not fit the limit. Without `band` it is quicker."""
        ...


class GraphPhase:
    """A phase in the graph regime."""

    def __init__(self, step: Step, gpu: GPU | None) -> None:
        self.step = step
        self._model = GraphModel(step, gpu)

    def predict(self, batch: int, *, limit: int, growth: bool, resident: int, band: bool) -> PhasePrediction | None:
        """Replay the step on the simulated allocator."""
        try:
            found = self._model.predict(batch, limit=limit, growth=growth, resident=resident, band=band)
        except OutOfMemory:
            return None
        value = found.replay.steady_peak
        below, above = self._margins()
        highest = int(found.steady_peaks[-1] * (1 + above)) + found.scratch
        steady = Peak(value, int(found.steady_peaks[0] * (1 - below)), highest)
        first = found.replay.first_step_peak
        reserved = found.replay.reserved if self.step.device == "GPU" else _grown(value)
        return PhasePrediction(
            steady=steady,
            first_step=self._first_step(first, steady, batch, limit),
            reserved=_reserved(reserved, steady, limit, growth),
            composition=compose_graph(found, batch, value, resident),
            method="executor replay",
            unknown_ops=self._unknown(),
        )

    def _first_step(self, value: int, steady: Peak, batch: int, limit: int) -> Peak:
        if self._model.trials_are_known(batch):
            low, high = (int(value * share) for share in _FIRST_STEP_BAND)
            return Peak(value, max(low, min(steady.low, value)), max(steady.high, min(limit, high)))
        return Peak(value, steady.low, max(steady.high, min(limit, int(value * _FIRST_STEP_HIGH))))

    def _margins(self) -> tuple[float, float]:
        """What the replays leave open below and above them."""
        below = above = _REPLAY_MARGIN if self.step.device == "GPU" else _CPU_MARGIN
        if self._unknown():
            above += _UNKNOWN_MARGIN
        if self.step.has_loops:
            of_loops = _LOOP_MARGINS[self.step.device]
            below, above = below + of_loops[0], above + of_loops[1]
        return below, above

    def _unknown(self) -> tuple[str, ...]:
        # cuDNN alone knows the size of a recurrent layer's reserve space; the workspace model has it.
        return tuple(op.name for op in self.step.unknown_sizes if not op.type.startswith("CudnnRNN"))


class XlaPhase:
    """A phase in the XLA regime: compiled for one batch size, scaled to others.

    Args:
        function: The step.
        spec: The batch at a size.
        gpu: The card.
        variables: The bytes of what stays in memory, by kind.
        layers: The names of the model's layers.
        on_card: Whether to compile it on the card if that is here, which takes up to two minutes.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        spec: Callable[[int], Any],
        gpu: GPU,
        variables: dict[Kind, int],
        layers: Sequence[str],
        *,
        on_card: bool = True,
    ) -> None:
        self._function, self._spec, self._gpu = function, spec, gpu
        self._on_card = on_card
        self._variables, self._layers = variables, layers
        self._compiled: tuple[int, LoweredStep, CompiledStep | None] | None = None
        self._method, self._failed = "HLO liveness", ""

    def predict(self, batch: int, *, limit: int, growth: bool, resident: int, band: bool) -> PhasePrediction | None:
        """Compile the step, or scale the one compiled before; the band costs nothing here."""
        del band
        if self._compiled is None:
            lowered = lower_to_hlo(self._function, self._spec(batch))
            self._compiled = (batch, lowered, self._compile(lowered))
        compiled_at, lowered, compiled = self._compiled
        extra = [resident] if resident else []
        if compiled is None:
            found = steady_peak_without_compiler(lowered, resident=extra, memory_growth=growth)
        else:
            found = steady_peak(compiled, lowered, self._gpu, resident=extra, memory_growth=growth)
        steady, parts = Peak(found.likely, found.low, found.high), dict(found.parts)
        if batch != compiled_at:
            steady, parts = _scaled(found, compiled, batch, compiled_at, resident)
        weights = self._variables.get("parameters", 0) if self._variables.get("optimizer_state") else 0
        # A growing pool may take more than it has to; under a limit the first step must fit too.
        if (steady.value if growth else steady.value + weights) > limit:
            return None
        first = self._first_step(steady, weights, limit, resident, batch / compiled_at, compiled)
        return PhasePrediction(
            steady=steady,
            first_step=first,
            reserved=_reserved(_grown(steady.value), steady, limit, growth),
            composition=compose_xla(compiled, parts, self._variables, self._layers),
            method=self._method,
        )

    def _first_step(
        self, steady: Peak, weights: int, limit: int, resident: int, ratio: float, compiled: CompiledStep | None
    ) -> Peak:
        """The first step runs after kernels were timed; `ratio` is the batch over the one that was compiled."""
        value, low = steady.value + int(_FIRST_WEIGHTS * weights), steady.low
        high = steady.high + int(_FIRST_WEIGHTS_HIGH * weights)
        beside = sum(self._variables.values()) + resident
        if compiled is None:
            # What is tried is not known: convolutions get their shapes from the compiler.
            if not leaves_fft_kernels_out():
                high = max(high, int(steady.value * _XLA_AUTOTUNING_HIGH))
        elif compiled.compiling_peak is not None and ratio == 1:
            timing = beside + compiled.compiling_peak
            value, high = max(value, timing), max(high, int(timing * _TIMING_HIGH))
        else:
            trial = trial_bytes(compiled.convolutions, offered_kernels(compiled.convolutions, self._gpu))
            timing = min(limit, beside + int(trial * ratio))
            if timing > value:
                value, low = timing, max(low, int(timing * _XLA_TRIALS_BAND[0]))
            high = max(high, int(value * _XLA_TRIALS_BAND[1]))
        return Peak(value, low, max(value, min(limit, high)))

    def _compile(self, lowered: LoweredStep) -> CompiledStep | None:
        """What XLA says: on this machine's GPU if that is the target, else without one; `None` if neither can."""
        if _is_switched_off():
            return None
        if self._on_card and is_here(self._gpu):
            try:
                compiled = compile_on_card(lowered, self._gpu)
            except CardError:
                self._failed = ", since XLA failed on this machine's GPU"
            else:
                self._method = "XLA on this machine's GPU"
                return compiled
        if missing_packages():
            self._method += self._failed
            return None
        try:
            compiled = compile_for(lowered.hlo, self._gpu)
        except XlaCompilationError:
            self._method = "HLO liveness, since XLA's compiler failed"
            return None
        self._method = "XLA compiler" + self._failed
        return compiled


def uses_compiler() -> bool:
    """Whether XLA's own compiler is there (`memfit[xla]`) and not switched off with MEMFIT_XLA=off."""
    return not _is_switched_off() and not missing_packages()


def _is_switched_off() -> bool:
    return os.environ.get("MEMFIT_XLA", "").lower() == "off"


def _scaled(
    found: SteadyPeak, compiled: CompiledStep | None, batch: int, compiled_at: int, resident: int
) -> tuple[Peak, dict[str, int]]:
    """What follows the batch grows with it; weights, their gradients and slots do not."""
    parts = dict(found.parts)
    fixed = 0
    for buffer in compiled.at_peak if compiled else ():
        if not any(size and size % compiled_at == 0 for size in buffer.shape.dimensions):
            fixed += buffer.size
    ratio = batch / compiled_at
    parts["temporaries"] = int(fixed + (parts["temporaries"] - fixed) * ratio)
    parts["batch"] = int(parts["batch"] * ratio)
    parts["resident data"] = resident
    value = sum(parts.values())
    low, high = found.low / found.likely - _SCALED_MARGIN, found.high / found.likely + _SCALED_MARGIN
    return Peak(value, int(value * low), int(value * high)), parts


def _reserved(grown: int, steady: Peak, limit: int, growth: bool) -> Peak:
    if not growth:
        return Peak(limit, limit, limit)
    return Peak(grown, min(grown, _grown(steady.low)), min(limit, max(grown, _grown(steady.high) * 2)))


def _grown(size: int) -> int:
    """What regions that double from 2 MiB add up to."""
    return int(2 ** (math.floor(math.log2(max(size, 1) + 2 * 2**20)) + 1) - 2 * 2**20)
