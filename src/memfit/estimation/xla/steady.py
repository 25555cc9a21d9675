"""From what a compiled step needs to what `get_memory_info` will show while it trains.

One step holds, all at once: variables (updated in place), the batch, XLA's one block of temporaries, and results that
replace nothing. TensorFlow's allocator hands them out, with its own rounding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memfit.estimation.xla.compiled import CompiledStep
from memfit.estimation.xla.hlo import LoweredStep, read_lowered
from memfit.estimation.xla.liveness import estimate_temporaries
from memfit.estimation.xla.workspace import offered_kernels, workspace
from memfit.hardware.catalog import GPU
from memfit.hardware.multiprocessor import multiprocessors_of
from memfit.units import MIB

# What compiling without the card leaves open besides workspaces: the backend and tiles of each matrix product decide
# what is fused into it. The block of seven networks on an H200 was met within 0.2 %; VGG16 moves by 2 % when its matrix
# products are forced to the other backend, and a Swin transformer took 3.1 % more.
_BACKEND_CHOICE = 0.032
# Timing kernels twice need not choose the same ones: a U-Net++ took 1447 and 1520 MiB on an H200.
_TIMED_AGAIN = 0.025
_ALIGNMENT = 256
# What a growing pool loses in chunks it does not split, on an H200: 3 to 28 MiB over 15 networks, 9 in the middle; once
# 56 MiB, a MobileNetV2 whose backbone is frozen.
_GROWTH_ROUNDING, _MOST_GROWTH_ROUNDING = 9 * MIB, 57 * MIB
# BFC leaves up to this much in a chunk rather than splitting it (bfc_allocator.cc).
_UNSPLIT = 128 * MIB


@dataclass(frozen=True)
class SteadyPeak:
    """The predicted peak of steady training steps, in bytes."""

    likely: int
    low: int
    high: int
    parts: Mapping[str, int]
    """`variables`, `resident data`, `batch`, `temporaries`, `outputs`, `allocator rounding`: together `likely`."""


def steady_peak(
    compiled: CompiledStep,
    lowered: LoweredStep,
    gpu: GPU,
    *,
    resident: Sequence[int] = (),
    memory_growth: bool = True,
) -> SteadyPeak:
    """Predict the most bytes TensorFlow's allocator has in use during a training step.

    Args:
        compiled: The step, compiled for the GPU.
        lowered: The same step before compilation; it knows its variables and its batch.
        gpu: The card.
        resident: Bytes of other tensors on the GPU, such as the arrays behind `Dataset.from_tensors`, which TensorFlow
            keeps there when they are not integers.
        memory_growth: Whether memory growth is on; a pool that grows rounds differently.
    """
    outputs = max(0, compiled.output_bytes - compiled.alias_bytes)
    if compiled.is_timed:
        uncertain = int(compiled.temp_bytes * _TIMED_AGAIN)
        return _with_allocator(
            lowered,
            (compiled.temp_bytes, compiled.temp_bytes - uncertain, compiled.temp_bytes + uncertain),
            outputs,
            resident=resident,
            memory_growth=memory_growth,
        )
    offered = offered_kernels(compiled.convolutions, gpu)
    spread = [workspace(each, multiprocessors_of(gpu), offered.get(each.problem, ())) for each in compiled.convolutions]
    excess = max((each.high - each.likely for each in spread), default=0)
    saved = max((each.likely - each.low for each in spread), default=0)
    held = {buffer.instruction for buffer in compiled.at_peak}
    excess += max((each.size for each in compiled.fills if each.instruction not in held), default=0)
    saved += max((each.size for each in compiled.fills if each.instruction in held), default=0)
    uncertain = int(compiled.temp_bytes * _BACKEND_CHOICE)
    return _with_allocator(
        lowered,
        (compiled.temp_bytes, compiled.temp_bytes - uncertain - saved, compiled.temp_bytes + uncertain + excess),
        outputs,
        resident=resident,
        memory_growth=memory_growth,
    )


def steady_peak_without_compiler(
    lowered: LoweredStep,
    *,
    resident: Sequence[int] = (),
    memory_growth: bool = True,
) -> SteadyPeak:
    """The same from the step's HLO alone, with a wider band; see `liveness`. Arguments as for `steady_peak`."""
    estimate = estimate_temporaries(read_lowered(lowered))
    return _with_allocator(
        lowered,
        (estimate.temp_bytes, estimate.low, estimate.high),
        0,
        resident=resident,
        memory_growth=memory_growth,
    )


def _with_allocator(
    lowered: LoweredStep,
    temporaries: tuple[int, int, int],
    outputs: int,
    *,
    resident: Sequence[int],
    memory_growth: bool,
) -> SteadyPeak:
    likely, low, high = temporaries
    parts = {
        "variables": lowered.parameter_bytes("variable") + lowered.parameter_bytes("constant"),
        "resident data": sum(resident),
        "batch": lowered.parameter_bytes("data"),
        "temporaries": likely,
        "outputs": outputs,
    }
    rounding = sum(-each.size % _ALIGNMENT for each in lowered.parameters) + -likely % _ALIGNMENT
    unsplit = _left_in_region(likely) if memory_growth else 0
    if memory_growth:
        rounding += unsplit + _GROWTH_ROUNDING
    parts["allocator rounding"] = rounding
    total = sum(parts.values())
    return SteadyPeak(
        likely=total,
        # Autotuning may have left a larger region to cut the block from; then nothing of it is wasted.
        low=total - (likely - low) - unsplit - (_GROWTH_ROUNDING if memory_growth else 0),
        high=total + (high - likely) + (_MOST_GROWTH_ROUNDING - _GROWTH_ROUNDING if memory_growth else 0),
        parts=parts,
    )


def _left_in_region(size: int) -> int:
    """What a pool that grows leaves unused behind one large block.

    A new region is the next power of two. BFC gives all of it to the block unless half of it or 128 MiB is left.
    """
    left = (1 << max(0, size - 1).bit_length()) - size
    return left if left < min(size, _UNSPLIT) else 0
