"""A profile as a timeline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.observe.profiler import Allocation, Profile, free_at_peak
from memfit.observe.timeline import MOST_POINTS, Held, Names, make_timeline, thinned
from memfit.trace.reader import layer_of, part_of

NAMES = Names(
    layer_of(["conv", "dense"]),
    part_of("adam"),
    (Held("conv/kernel", "conv", 400, (10, 10), "float32"), Held("elsewhere", None, 10**9, (1,), "int64")),
)


def profile(*changes, base=1000):
    """Each change is `(address, signed bytes, op)`, a microsecond after the other."""
    events, in_use = [], base
    for number, (address, size, *op) in enumerate(changes):
        in_use += size
        region = "temp" if "temp" in op else "output"
        events.append(
            Allocation(
                number * 1_000_000,
                address,
                size,
                in_use,
                None,
                None,
                op[0] if op else "",
                region,
                "float32",
                (size // 4,),
            )
        )
    return Profile(tuple(events), {"call/net/conv_1/Relu": "_FusedConv2D"})


def timeline(recorded, names=NAMES):
    return make_timeline(recorded, names, at=1.0, phase="train", step=4, seconds=0.5)


STEP = profile(
    (1, 4000, "call/net/conv_1/Relu"),
    (2, 800, "call/net/dense_1/MatMul", "temp"),
    (3, 2000, "call/gradient_tape/net/dense_1/MatMul"),
    (2, -800),
    (1, -4000),
    (4, 400, "call/adam/Mul"),
    (3, -2000),
    (4, -400),
)


def test_operations_have_their_layer_type_and_part():
    names = timeline(STEP).names
    assert [(each.layer, each.op_type, each.part) for each in names] == [
        ("conv", "_FusedConv2D", "forward"),
        ("dense", "MatMul", "forward"),
        ("dense", "MatMul", "backward"),
        (None, "Mul", "update"),
    ]


def test_what_is_freed_belongs_to_what_allocated_it():
    points = timeline(STEP).points
    assert points[0] == (0, 5000, 0, 4000)
    assert points[4] == (4, 3000, 0, -4000)
    assert points[-1] == (7, 1000, 3, -400)


def test_the_peak_is_made_up_of_variables_tensors_and_the_rest():
    line = timeline(STEP)
    assert (line.base_bytes, line.peak_bytes) == (1000, 7800)
    assert sum(tensor.bytes for tensor in line.at_peak) == 7800
    assert [(tensor.op_type, tensor.kind, tensor.bytes) for tensor in line.at_peak] == [
        ("_FusedConv2D", "activations", 4000),
        ("MatMul", "gradients", 2000),
        ("MatMul", "workspace", 800),
        ("", "other", 600),
        ("Variable", "variables", 400),
    ]


def test_what_was_there_before_and_is_freed_is_not_at_the_peak():
    line = timeline(profile((99, -700), (1, 5000, "call/net/conv_1/Relu")))
    assert (line.base_bytes, line.peak_bytes) == (1000, 5300)
    assert [tensor.bytes for tensor in line.at_peak] == [5000, 300]


def test_what_a_compiled_step_holds_is_called_so():
    compiled = Names(NAMES.layer, NAMES.part, compiled=True)
    line = timeline(profile((1, 5000)), compiled)
    assert (line.names[0].op, line.at_peak[0].kind) == ("the step compiled by XLA", "activations")


def test_no_allocations_no_timeline():
    assert timeline(Profile((), {})) is None


def test_a_long_step_is_thinned_and_its_operations_with_it():
    changes = [(number, 10, f"call/op{number}/x") for number in range(6000)]
    changes += [(number, -10) for number in range(6000)]
    line = timeline(profile(*changes))
    assert len(line.points) <= MOST_POINTS
    assert max(point[1] for point in line.points) == line.peak_bytes == 61_000
    assert max(point[2] for point in line.points) < len(line.names) <= MOST_POINTS
    assert len(line.at_peak) == 1000
    assert sum(tensor.bytes for tensor in line.at_peak) == 61_000


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=400), st.integers(2, 50))
def test_thinning_keeps_the_extremes_the_order_and_the_bound(levels, most):
    points = [(number, level, 0, 0) for number, level in enumerate(levels)]
    kept = thinned(points, most)
    assert len(kept) <= max(most, 2)
    assert kept == sorted(kept)
    assert max(kept, key=lambda point: point[1])[1] == max(levels)
    assert min(kept, key=lambda point: point[1])[1] == min(levels)


@pytest.mark.parametrize("most", [2, 4000])
def test_few_points_are_left_alone(most):
    assert thinned([(0, 1, 0, 1), (1, 0, 0, -1)], most) == [(0, 1, 0, 1), (1, 0, 0, -1)]


def test_what_is_free_at_the_peak_and_in_one_piece():
    def allocation(in_use, free, scattered):
        return Allocation(0, 1, 1, in_use, free, scattered, "", "", None, None)

    seen = [allocation(10, 90, 0.0), allocation(60, 40, 0.75), allocation(20, 80, 0.5)]
    assert free_at_peak(Profile(tuple(seen), {})) == (40, 10)
    assert free_at_peak(Profile((allocation(10, None, None),), {})) is None
