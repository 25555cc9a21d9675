import dataclasses

import pytest

from memfit.estimation.xla.compiled import Buffer, CompiledStep
from memfit.estimation.xla.hlo import LoweredStep, Parameter
from memfit.estimation.xla.program import Shape
from memfit.estimation.xla.steady import steady_peak
from memfit.hardware.catalog import find_gpu
from memfit.units import MIB

H200 = find_gpu("H200")
LOWERED = LoweredStep(
    hlo=b"",
    parameters=(
        Parameter("data", 8 * MIB, "f32", updated=False),
        *(Parameter("variable", 4 * MIB, "f32", updated=True) for _ in range(12)),
    ),
)
COMPILED = CompiledStep(
    argument_bytes=56 * MIB,
    output_bytes=48 * MIB,
    alias_bytes=48 * MIB,
    temp_bytes=600 * MIB,
    rematerialised=0,
    timeline=(),
    at_peak=(),
    convolutions=(),
)


def test_the_parts_add_up_to_the_peak():
    peak = steady_peak(COMPILED, LOWERED, H200, resident=[8 * MIB])
    assert sum(peak.parts.values()) == peak.likely
    assert peak.parts["variables"] == 48 * MIB
    assert peak.parts["batch"] == peak.parts["resident data"] == 8 * MIB


def test_without_growth_the_pool_rounds_next_to_nothing():
    peak = steady_peak(COMPILED, LOWERED, H200, memory_growth=False)
    assert peak.likely == pytest.approx(656 * MIB, abs=MIB)


def test_a_block_that_nearly_fills_its_region_takes_all_of_it():
    # EfficientNetB0 at batch 32 on an H200: 1938 MiB of temporaries took the whole 2 GiB region.
    compiled = dataclasses.replace(COMPILED, temp_bytes=1938 * MIB)
    peak = steady_peak(compiled, LOWERED, H200)
    assert peak.parts["allocator rounding"] == pytest.approx(110 * MIB, abs=16 * MIB)
    assert peak.low < peak.likely - 100 * MIB


def test_results_that_replace_nothing_are_counted():
    compiled = dataclasses.replace(COMPILED, output_bytes=68 * MIB)
    assert steady_peak(compiled, LOWERED, H200, memory_growth=False).parts["outputs"] == 20 * MIB


def test_a_fill_that_may_come_early_widens_the_band_upwards():
    fill = Buffer(100 * MIB, "fill", "fusion", Shape("f32", (), 100 * MIB), "", "")
    plain = steady_peak(COMPILED, LOWERED, H200)
    later = steady_peak(dataclasses.replace(COMPILED, fills=(fill,)), LOWERED, H200)
    early = steady_peak(dataclasses.replace(COMPILED, fills=(fill,), at_peak=(fill,)), LOWERED, H200)
    assert later.high == plain.high + 100 * MIB
    assert early.low == plain.low - 100 * MIB


def test_the_estimate_lies_in_its_band():
    for growth in (True, False):
        peak = steady_peak(COMPILED, LOWERED, H200, memory_growth=growth)
        assert peak.low <= peak.likely <= peak.high
