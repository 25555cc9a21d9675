from types import SimpleNamespace

import pytest

from memfit.trace.reader import _Graph, _shape, _that_run, layer_of, part_of
from memfit.trace.step import Tensor


def node(name, op="Mul", *inputs):
    return SimpleNamespace(name=name, op=op, input=list(inputs))


def names_that_run(nodes, outcome):
    return {each.name for each in _that_run(_Graph(nodes), outcome)}


@pytest.fixture
def condition():
    """If finite: update, else: skip; the outcomes meet in a Merge."""
    return [
        node("finite", "IsFinite"),
        node("gradient"),
        node("switch", "Switch", "gradient", "finite"),
        node("update", "AssignSubVariableOp", "switch:1"),
        node("after_update", "NoOp", "^update"),
        node("skip", "Identity", "switch"),
        node("updated", "Identity", "switch:1", "^update"),
        node("merge", "Merge", "skip", "updated"),
        node("end", "Identity", "merge"),
    ]


def test_a_true_condition_runs_its_branch_and_what_follows_both(condition):
    assert names_that_run(condition, True) == {each.name for each in condition} - {"skip"}


def test_a_false_condition_runs_the_other(condition):
    dead = {"update", "after_update", "updated"}
    assert names_that_run(condition, False) == {each.name for each in condition} - dead


@pytest.mark.parametrize(
    ("operation", "layer"),
    [
        ("resnet50_1/conv1_conv_1/convolution", "conv1_conv"),
        ("gradient_tape/resnet50_1/conv1_conv_1/convolution/Conv2DBackpropFilter", "conv1_conv"),
        ("net_1/conv2d_1/convolution", "conv2d"),
        ("net_1/conv2d_1_2/convolution", "conv2d_1"),
        ("adam/Sub_18", None),
        ("AddN", None),
    ],
)
def test_operations_find_their_layer(operation, layer):
    assert layer_of(["conv1_conv", "conv2d", "conv2d_1"])(operation) == layer


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("net_1/conv2d_1/convolution", "forward"),
        ("gradient_tape/net_1/conv2d_1/convolution/Conv2DBackpropInput", "backward"),
        ("AddN_3", "backward"),
        ("while/body/_1/gradient_tape/while/net_1/conv2d_1/convolution/Conv2DBackpropInput", "backward"),
        ("while/body/_1/while/AddN_3", "backward"),
        ("while/body/_1/while/StatefulPartitionedCall/AddN", "backward"),
        ("while/body/_1/while/net_1/conv2d_1/convolution", "forward"),
        ("net_1/my_layer_1/AddN", "forward"),
        ("adam/Sub_18", "update"),
        ("cond/then/_0/cond/adam/Sqrt_385", "update"),
    ],
)
def test_operations_find_their_part(operation, part):
    assert part_of("adam")(operation) == part


def shape(*sizes, unknown_rank=False):
    return SimpleNamespace(unknown_rank=unknown_rank, dim=[SimpleNamespace(size=size) for size in sizes])


def test_dimensions_follow_the_batch_they_are_a_multiple_of():
    found = Tensor("float32", 4, _shape(shape(251, 2 * 251, 224, 1), 251))
    assert found.dimensions(8) == (8, 16, 224, 1)
    assert found.bytes(8) == 8 * 16 * 224 * 4


def test_slices_behind_each_other_are_the_batch():
    found = Tensor("float32", 4, _shape(shape(251, 8, 10), 251 * 8))
    assert found.bytes(64) == 64 * 10 * 4


@pytest.mark.parametrize("unknown", [shape(251, -1), shape(unknown_rank=True)])
def test_an_unknown_shape_stays_unknown(unknown):
    assert _shape(unknown, 251) is None
    assert Tensor("float32", 4, None).bytes(8) is None
