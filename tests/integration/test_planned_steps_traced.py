"""Steps that recompute in calls and work in a loop, as people write them: what is traced of them."""

from itertools import pairwise

import keras
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.estimation.graph import GraphModel
from memfit.estimation.lifetimes import lifetimes
from memfit.hardware.catalog import find_gpu
from memfit.trace.tracer import trace_step

ALL_THERE_IS = 1 << 40


def mlp(width=64, depth=4):
    inputs = tensor = keras.Input((width,))
    between = [tensor]
    for number in range(depth):
        tensor = layers.Dense(width, activation="relu", name=f"hidden_{number}")(tensor)
        between.append(tensor)
    return keras.Model(inputs, layers.Dense(10)(tensor)), between


def planned(model_and_between, segments=None, rows=None):
    model, between = model_and_between
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=False)
    if segments:
        recompute(model, between, segments)
    if rows:
        in_slices(model, rows)
    return model


def recompute(model, between, count):
    """All segments but the last, each in a call of its own in the backward pass."""
    cuts = [between[round(number * (len(between) - 1) / count)] for number in range(1, count)]
    points = [model.inputs[0], *cuts, model.outputs[0]]
    parts = [keras.Model(start, end) for start, end in pairwise(points)]

    def call(inputs, training=None, mask=None):
        for part in parts[:-1]:
            inputs = recomputed(part, inputs)
        return parts[-1](inputs, training=training)

    model.call = call


def recomputed(part, inputs):
    state = [each.value for each in part.non_trainable_variables]

    def again(inputs, upstream, weights, state):
        with tf.GradientTape() as tape:
            tape.watch([inputs, *weights])
            outputs, _ = part.stateless_call(list(weights), list(state), inputs, training=True)
        return tape.gradient(outputs, [inputs, *weights], output_gradients=upstream)

    backward = tf.function(again, autograph=False, experimental_attributes={"_noinline": True})

    @tf.custom_gradient
    def forward(inputs, *weights):
        outputs, after = part.stateless_call(list(weights), state, inputs, training=True)
        return (outputs, *after), lambda upstream, *_: backward(inputs, upstream, list(weights), state)

    outputs, *after = forward(inputs, *[each.value for each in part.trainable_variables])
    for variable, value in zip(part.non_trainable_variables, after, strict=True):
        variable.assign(value)
    return outputs


def in_slices(model, rows):
    """Gradients added up over slices of the batch, then one update."""

    def train_step(data):
        x, y = data
        turns = x.shape[0] // rows

        def turn(number, total, sums):
            x_slice = tf.slice(x, [number * rows, *[0] * (len(x.shape) - 1)], [rows, *x.shape[1:]])
            y_slice = tf.slice(y, [number * rows], [rows])
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x_slice, y_slice, model(x_slice, training=True))
            gradients = tape.gradient(loss, model.trainable_weights)
            return number + 1, total + loss, [a + b for a, b in zip(sums, gradients, strict=True)]

        zeros = [tf.zeros(each.shape) for each in model.trainable_weights]
        _, total, sums = tf.while_loop(lambda number, *_: number < turns, turn, (0, 0.0, zeros), parallel_iterations=1)
        model.optimizer.apply([each / turns for each in sums], model.trainable_weights)
        return {"loss": total / turns}

    train_step.slice_rows = rows
    model.train_step = train_step


@pytest.mark.parametrize("gpu", [None, "3060"])
def test_calls_are_opened_and_what_they_compute_again_is_backward(gpu):
    step = trace_step(planned(mlp(), segments=3), "train", gpu=gpu and find_gpu(gpu))
    types = [op.type for op in step.ops]
    assert types.count("CallStart") == types.count("CallEnd") == 2
    assert not any(type_.endswith("PartitionedCall") for type_ in types)
    inside = [op for op in step.ops if "PartitionedCall" in op.name and "MatMul" in op.type]
    assert {op.part for op in inside} == {"backward"}
    assert {op.layer for op in inside} == {"hidden_0", "hidden_1", "hidden_2"}
    forward = [op for op in step.ops if op.part == "forward" and "MatMul" in op.type]
    assert {op.layer for op in forward} >= {"hidden_0", "hidden_1", "hidden_2", "hidden_3"}


def test_a_recomputed_segment_starts_when_its_gradient_is_there():
    step = trace_step(planned(mlp(), segments=4), "train", gpu=find_gpu("3060"))
    order = [step.ops[number].name for number in program(step).order]
    ends = [order.index(name) for name in ("PartitionedCall", "PartitionedCall_1", "PartitionedCall_2")]
    starts = [order.index(f"{order[end]}/start_of_call") for end in ends]
    assert starts[0] < ends[0] < starts[1] < ends[1] < starts[2] < ends[2]


def test_a_loop_inside_a_call_keeps_what_each_turn_pushes():
    def peak(turns):
        inputs = keras.Input((turns, 8))
        hidden = layers.LSTM(64)(inputs)
        model = keras.Model(inputs, layers.Dense(10)(hidden))
        step = trace_step(planned((model, [inputs, hidden]), segments=2), "train", gpu=None)
        assert not step.unknown_sizes
        return GraphModel(step, None).predict(64, limit=ALL_THERE_IS, growth=True).replay.steady_peak

    assert peak(64) > 1.7 * peak(32)


@pytest.fixture(params=[None, "3060"])
def sliced(request):
    gpu = request.param and find_gpu(request.param)
    return trace_step(planned(mlp(), segments=2, rows=8), "train", gpu=gpu)


def test_a_slice_has_as_many_rows_at_every_batch_size(sliced):
    products = [op for op in sliced.ops if "MatMul" in op.type]
    assert {op.outputs[0].shape[0] for op in products} == {(0, 8), (0, 64)}  # activations and weights
    assert sum(op.outputs[0].shape == ((1, 0), (0, 64)) for op in sliced.ops if op.type == "IteratorGetNext") == 1


def test_no_more_rows_are_traced_than_slices_hold(sliced):
    assert not sliced.unknown_sizes
    assert not any(op.outputs and op.outputs[0].shape == ((0, 3), (0, 64)) for op in sliced.ops)  # 251 % 8


def test_sums_have_buffers_of_their_own_though_they_begin_as_one_constant(sliced):
    weights = sum(each.bytes for each in sliced.variables if each.kind == "parameter")
    assert sum(alive_before(sliced, "start_of_call")) >= weights


def test_the_batch_stays_until_the_loop_ends(sliced):
    assert 16 * 64 * 4 in alive_before(sliced, "end_of_loop")


def test_updates_wait_for_the_last_slice(sliced):
    order = [sliced.ops[number] for number in program(sliced).order]
    end = next(place for place, op in enumerate(order) if op.name.endswith("end_of_loop"))
    places = [place for place, op in enumerate(order) if op.type == "AssignSubVariableOp"]
    assert places
    assert min(places) > end


def test_what_a_slice_does_to_the_state_is_traced():
    inputs = keras.Input((64,))
    normalised = layers.BatchNormalization()(inputs)
    model = keras.Model(inputs, layers.Dense(10)(normalised))
    step = trace_step(planned((model, [inputs]), rows=8), "train", gpu=None)
    written = {step.variables[op.variable].name for op in step.ops if op.type == "AssignVariableOp"}
    assert any(name.endswith("moving_mean") for name in written)


def test_a_slice_has_the_rows_it_was_given_however_many():
    model = keras.Sequential([keras.Input((16,)), *[layers.Dense(64, activation="relu") for _ in range(4)]])
    model.compile("sgd", "mse", jit_compile=False)
    plain = memfit.estimate(model, 100_000, gpu="cpu", jit=False).steady_peak.value
    with memfit.applied(model, memfit.Plan(micro_batch=1000)):
        sliced = memfit.estimate(model, 100_000, gpu="cpu", jit=False).steady_peak.value
    assert sliced < plain / 3


@pytest.fixture
def sliced_text():
    body = [layers.Embedding(1000, 16), layers.LSTM(16), layers.Dropout(0.5)]
    model = keras.Sequential([keras.Input((12,), dtype="int32"), *body, layers.Dense(4)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    with memfit.applied(model, memfit.Plan(micro_batch=8)):
        return trace_step(model, "train", gpu=None)


def test_every_operation_of_a_loop_in_a_sliced_step_has_a_size(sliced_text):
    assert not sliced_text.unknown_sizes


def test_gradients_of_an_embedding_have_as_many_rows_as_the_batch_has_tokens(sliced_text):
    rows = [op for op in sliced_text.ops if op.type == "TensorListConcatV2" and op.outputs[0].dtype == "float32"]
    assert [op.outputs[0].dimensions(32) for op in rows] == [(32 * 12, 16)]
    kept = [
        op for op in sliced_text.ops if op.type == "TensorListSetItem" and op.outputs[0].shape == ((12, 0), (0, 16))
    ]
    assert len(kept) == 1


def program(step):
    return lifetimes(step, 16, workspace=lambda *_: 0)


def alive_before(step, operation):
    """The sizes of the buffers of a step when an operation is about to run."""
    ran = program(step)
    places = {number: place for place, number in enumerate(ran.order)}
    at = next(places[number] for number, op in enumerate(step.ops) if op.name.endswith(operation))
    sizes = {}
    for event in ran.events:
        if places[event.op] < at and event.size:
            sizes[event.buffer] = event.size
        elif places[event.op] < at:
            sizes.pop(event.buffer, None)
    return list(sizes.values())
