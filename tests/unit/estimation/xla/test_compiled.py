from types import SimpleNamespace

from memfit.estimation.xla import compiled
from memfit.estimation.xla.compiled import CompiledStep, Moment, layer_of
from memfit.estimation.xla.program import Instruction, Shape

ALLOC, FREE, SHARE = 0, 1, 2


def event(kind, buffer, instruction, shared=0):
    return SimpleNamespace(
        kind=kind,
        ALLOC=ALLOC,
        FREE=FREE,
        SHARE_WITH=SHARE,
        buffer_id=buffer,
        instruction_name=instruction,
        share_with_canonical_id=shared,
    )


def replay(sizes, events):
    values = {number: compiled._Value(size, number, ()) for number, size in sizes.items()}
    instructions = {
        number: Instruction(number, f"fusion.{number}", "fusion", Shape("f32", (size // 4,), size))
        for number, size in sizes.items()
    }
    assignment = SimpleNamespace(heap_simulator_traces=[SimpleNamespace(events=events)])
    return compiled._replay(assignment, values, instructions)


def test_the_timeline_follows_allocations_and_releases():
    timeline, peak = replay(
        {1: 100, 2: 40, 3: 60},
        [
            event(ALLOC, 1, "a"),
            event(ALLOC, 2, "b"),
            event(FREE, 1, "b"),
            event(ALLOC, 3, "c"),
            event(FREE, 2, "c"),
            event(FREE, 3, "c"),
        ],
    )
    assert timeline == (Moment("a", 100), Moment("b", 140), Moment("c", 100))
    assert sorted(buffer.size for buffer in peak) == [40, 100]


def test_a_shared_buffer_is_counted_once_and_freed_with_its_last_holder():
    timeline, _ = replay(
        {1: 100, 2: 100, 3: 10},
        [
            event(ALLOC, 1, "a"),
            event(SHARE, 2, "b", shared=1),
            event(FREE, 1, "b"),
            event(ALLOC, 3, "c"),
            event(FREE, 2, "d"),
        ],
    )
    assert [moment.live for moment in timeline] == [100, 100, 110, 10]


def test_values_outside_the_temporary_block_do_not_count():
    timeline, _ = replay({1: 100}, [event(ALLOC, 1, "a"), event(ALLOC, 9, "b"), event(FREE, 9, "b")])
    assert max(moment.live for moment in timeline) == 100


def test_the_layer_is_named_without_the_marks_of_the_gradient():
    assert layer_of("gradient_tape/unet/conv2d_3/convolution/Conv2DBackpropFilter") == "unet/conv2d_3/convolution"
    assert layer_of("unet/relu/Relu") == "unet/relu"
    assert layer_of("") == ""


def test_bytes_at_the_peak_are_summed_by_layer():
    def buffer(size, op_name):
        return compiled.Buffer(size, "fusion.1", "fusion", Shape("f32", (), size), op_name, "")

    step = CompiledStep(
        argument_bytes=10,
        output_bytes=8,
        alias_bytes=6,
        temp_bytes=100,
        rematerialised=0,
        timeline=(Moment("a", 90),),
        at_peak=(buffer(50, "net/a/Relu"), buffer(30, "net/b/Relu"), buffer(25, "gradient_tape/net/b/Relu")),
        convolutions=(),
    )
    assert step.by_layer() == {"net/b": 55, "net/a": 50}
    assert step.total_bytes == 10 + 8 - 6 + 100
    assert step.live_peak == 90
