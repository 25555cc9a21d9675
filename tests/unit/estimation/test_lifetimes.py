import pytest

from memfit.estimation.lifetimes import lifetimes
from memfit.hardware import onednn
from memfit.trace.step import AHEAD

KIB_PER_SAMPLE = ((256, 0),)  # 256 floats a sample: 1 KiB


def no_workspace(_step, _index, _batch):
    return 0


def peak(step, batch, workspace=no_workspace, threads=1, seed=None):
    program = lifetimes(step, batch, workspace=workspace, threads=threads, seed=seed)
    sizes = {buffer: step.variables[number].bytes for number, buffer in enumerate(program.variables_at_start)}
    in_use = highest = sum(sizes.values())
    for event in program.events:
        if event.size:
            sizes[event.buffer] = event.size
            in_use += event.size
        else:
            in_use -= sizes[event.buffer]
        highest = max(highest, in_use)
    return highest, in_use


def test_a_chain_holds_input_and_output_of_one_operation(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    b = builder.op("MatMul", a, shape=KIB_PER_SAMPLE)
    c = builder.op("MatMul", b, shape=KIB_PER_SAMPLE)
    builder.op("MatMul", c, shape=KIB_PER_SAMPLE)
    assert peak(builder.build(), 4) == (2 * 4096, 0)


def test_an_elementwise_operation_takes_over_a_buffer_nobody_else_needs(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    builder.op("Relu", a, shape=KIB_PER_SAMPLE)
    assert peak(builder.build(), 4)[0] == 4096


def test_a_buffer_that_is_needed_again_is_not_taken_over(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    b = builder.op("Relu", a, shape=KIB_PER_SAMPLE)
    builder.op("MatMul", a, b, shape=KIB_PER_SAMPLE)
    assert peak(builder.build(), 4)[0] == 3 * 4096


def test_a_buffer_of_another_size_is_not_taken_over(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    builder.op("Relu", a, shape=((512, 0),))
    assert peak(builder.build(), 4)[0] == 4096 + 8192


def test_reshapes_cost_nothing(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    b = builder.op("Reshape", a, shape=((16, 0), (0, 16)))
    builder.op("Squeeze", b, shape=KIB_PER_SAMPLE)
    assert peak(builder.build(), 4)[0] == 4096


def test_rows_of_a_tensor_are_a_part_of_its_buffer(builder):
    a = builder.op("IteratorGetNext", shape=((1, 0), (0, 256)))
    builder.op("Slice", a, shape=((0, 2), (0, 256)))
    assert peak(builder.build(), 4)[0] == 4096


def test_scratch_lives_while_its_operation_runs(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    b = builder.op("MatMul", a, shape=KIB_PER_SAMPLE)
    builder.op("MatMul", b, shape=KIB_PER_SAMPLE)
    assert peak(builder.build(), 4, lambda _step, index, _batch: 10_000 if index == 1 else 0) == (2 * 4096 + 10_000, 0)


def test_updating_a_variable_that_is_still_read_copies_it(builder):
    weight = builder.variable(4096)
    read = builder.op("ReadVariableOp", variable=weight, shape=((0, 1024),))
    update = builder.op("AssignSubVariableOp", variable=weight, shape=None)
    builder.op("MatMul", read, shape=((0, 1024),), after=[update])
    assert peak(builder.build(), 1)[0] == 3 * 4096


def test_updating_a_variable_that_nobody_reads_is_in_place(builder):
    weight = builder.variable(4096)
    read = builder.op("ReadVariableOp", variable=weight, shape=((0, 1024),))
    used = builder.op("MatMul", read, shape=((0, 1024),))
    builder.op("AssignSubVariableOp", variable=weight, shape=None, after=[used])
    assert peak(builder.build(), 1)[0] == 2 * 4096


def test_slots_of_one_shape_share_their_zeros_until_the_first_update(builder):
    for _ in range(3):
        builder.variable(4096, "optimizer")
    step = builder.build()
    assert len(set(lifetimes(step, 1, workspace=no_workspace, first=True).variables_at_start)) == 1
    assert len(set(lifetimes(step, 1, workspace=no_workspace).variables_at_start)) == 3


def test_a_perturbed_order_is_reproducible_and_runs_everything(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    for _ in range(20):
        builder.op("MatMul", a, shape=KIB_PER_SAMPLE)
    step = builder.build()
    first, second = (lifetimes(step, 2, workspace=no_workspace, seed=7).order for _ in range(2))
    assert first == second != lifetimes(step, 2, workspace=no_workspace).order
    assert sorted(first) == list(range(21))


def test_what_lives_on_the_host_takes_no_device_memory(builder):
    import dataclasses

    a = builder.op("Shape", shape=((0, 4),))
    builder.ops[a] = dataclasses.replace(
        builder.ops[a], outputs=(dataclasses.replace(builder.ops[a].outputs[0], on_host=True),)
    )
    assert peak(builder.build(), 1)[0] == 0


def test_a_processor_takes_the_newest_of_the_expensive_operations_first(builder):
    batch = builder.op("IteratorV2")
    a = builder.op("IteratorGetNext", batch, shape=KIB_PER_SAMPLE)
    first = builder.op("MatMul", a, shape=KIB_PER_SAMPLE)
    second = builder.op("MatMul", a, shape=KIB_PER_SAMPLE)
    after = builder.op("MatMul", second, shape=KIB_PER_SAMPLE)
    order = lifetimes(builder.build("CPU"), 4, workspace=no_workspace).order
    assert order == [batch, a, second, after, first]


def test_a_processor_waits_for_the_batch_with_everything_else_done(builder):
    batch = builder.op("IteratorV2")
    builder.op("IteratorGetNext", batch, shape=KIB_PER_SAMPLE)
    other = builder.op("Fill", shape=KIB_PER_SAMPLE)
    assert lifetimes(builder.build("CPU"), 4, workspace=no_workspace).order[0] == other


def test_a_call_holds_its_inputs_until_it_ends(builder):
    a = builder.op("IteratorGetNext", shape=KIB_PER_SAMPLE)
    start = builder.op("CallStart", a, shape=KIB_PER_SAMPLE)
    b = builder.op("Relu", start, shape=KIB_PER_SAMPLE)
    c = builder.op("MatMul", b, shape=KIB_PER_SAMPLE)
    end = builder.op("CallEnd", c, start, shape=KIB_PER_SAMPLE)
    builder.op("MatMul", end, shape=KIB_PER_SAMPLE)
    assert peak(builder.build(), 4) == (3 * 4096, 0)


def test_a_processor_runs_what_waits_for_a_call_newest_first(builder):
    batch = builder.op("IteratorV2")
    a = builder.op("IteratorGetNext", batch, shape=KIB_PER_SAMPLE)
    start = builder.op("CallStart", a, shape=KIB_PER_SAMPLE)
    end = builder.op("CallEnd", start, shape=KIB_PER_SAMPLE)
    next_call = builder.op("CallStart", end, shape=KIB_PER_SAMPLE)
    cheap = builder.op("Reshape", end, shape=KIB_PER_SAMPLE)
    update = builder.op("MatMul", end, shape=KIB_PER_SAMPLE)
    order = lifetimes(builder.build("CPU"), 4, workspace=no_workspace).order
    assert order == [batch, a, start, end, update, cheap, next_call]


def _gradients_of_a_convolution(builder):
    batch = builder.op("IteratorV2")
    gradient = builder.op("IteratorGetNext", batch, shape=KIB_PER_SAMPLE)
    by_filter = builder.op("Conv2DBackpropFilter", gradient, shape=((0, 16),))
    by_input = builder.op("Conv2DBackpropInput", gradient, shape=KIB_PER_SAMPLE)
    return batch, gradient, by_filter, by_input


def test_onednn_may_run_the_gradients_of_a_convolution_in_either_order(builder, monkeypatch):
    monkeypatch.setattr(onednn, "is_off", lambda: False)
    batch, gradient, by_filter, by_input = _gradients_of_a_convolution(builder)
    step = builder.build("CPU")
    orders = [lifetimes(step, 4, workspace=no_workspace, seed=seed).order for seed in (None, *range(5))]
    assert orders[0] == [batch, gradient, by_input, by_filter]
    assert [batch, gradient, by_filter, by_input] in orders


def test_threads_hold_the_scratch_of_operations_that_run_at_once(builder):
    _gradients_of_a_convolution(builder)
    step = builder.build("CPU")

    def workspace(step, index, _batch):
        return 10**6 if step.ops[index].type.startswith("Conv2DBackprop") else 0

    def highest(threads):
        live, most, sizes = 0, 0, {}
        for event in lifetimes(step, 4, workspace=workspace, threads=threads).events:
            live += event.size or -sizes[event.buffer]
            sizes[event.buffer] = event.size
            most = max(most, live)
        assert live == 0
        return most

    assert highest(1) < 1.1 * 10**6
    assert highest(2) > 2 * 10**6


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_threads_run_everything_once_and_after_what_it_needs(builder, threads, seed):
    batch = builder.op("IteratorV2")
    ops = [builder.op("IteratorGetNext", batch, shape=KIB_PER_SAMPLE)]
    for number in range(12):
        ops.append(builder.op("MatMul", ops[number // 2], ops[number], shape=KIB_PER_SAMPLE))
    step = builder.build("CPU")
    order = lifetimes(step, 4, workspace=no_workspace, seed=seed, threads=threads).order
    assert sorted(order) == list(range(len(step.ops)))
    assert all(order.index(source) < order.index(number) for number in order for source, _ in step.ops[number].inputs)


@pytest.mark.parametrize(
    ("device", "loops_at_once", "threads", "waiting"),
    [("CPU", 2, 2, 8), ("CPU", 1, 2, 8), ("CPU", 1, 1, 8), ("CPU", 2, 4, 1), ("GPU", 2, 1, 1)],
    ids=["two loops for two threads", "one loop for two threads", "one thread", "threads to spare", "gpu"],
)
def test_turns_of_a_loop_get_ahead_of_the_sum_of_their_gradients(builder, device, loops_at_once, threads, waiting):
    state = builder.op("IteratorGetNext", shape=((0, 1),))
    gradient = builder.op("MatMul", state, shape=((0, 256),), **{AHEAD: [8, loops_at_once]})
    builder.op("AddN", gradient, shape=((0, 256),))
    assert peak(builder.build(device), 1, threads=threads) == (waiting * 1024 + 4, 0)


@pytest.mark.parametrize(("threads", "waiting"), [(2, 1), (1, 8)], ids=["second thread", "one thread"])
def test_a_second_thread_adds_large_gradients_in_time(builder, threads, waiting):
    state = builder.op("IteratorGetNext", shape=((0, 1),))
    gradient = builder.op("MatMul", state, shape=((0, 2**18),), **{AHEAD: [8, 1]})
    builder.op("AddN", gradient, shape=((0, 2**18),))
    assert peak(builder.build("CPU"), 1, threads=threads) == (waiting * 2**20 + 4, 0)


def test_turns_ahead_hold_what_their_gradients_are_computed_from(builder):
    state = builder.op("IteratorGetNext", shape=((1, 0), (0, 256)))
    gradients = [builder.op("MatMul", state, shape=((0, 256),), **{AHEAD: [8, 1]}) for _ in range(2)]
    for gradient in gradients:
        builder.op("AddN", gradient, shape=((0, 256),))
    # Each of seven other turns holds four samples of 1 KiB for two gradients of 1 KiB: half of them for each.
    assert peak(builder.build("CPU"), 4)[0] == 4 * 1024 + 1024 + 7 * 2 * 1024


@pytest.mark.parametrize(("seed", "loops"), [(None, 1), (1, 2), (2, 0)], ids=["plain", "late", "in time"])
def test_sums_of_one_loop_may_wait_for_the_next_loop(builder, seed, loops):
    state = builder.op("IteratorGetNext", shape=((0, 1),))
    for _ in range(2):
        gradient = builder.op("MatMul", state, shape=((0, 256),), **{AHEAD: [8, 1]})
        total = builder.op("AddN", gradient, shape=((0, 256),))
        state = builder.op("Sum", total, shape=((0, 1),))
    assert peak(builder.build("CPU"), 1, seed=seed)[0] // 1024 == 7 * loops + 1
