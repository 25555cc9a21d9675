import pytest
import tensorflow as tf

from memfit.trace.grappler import output_properties
from memfit.trace.shapes import Known, complete


@pytest.fixture
def graph_def():
    """Shapes that are computed from that of `x`, eight rows of four."""
    with tf.Graph().as_default() as graph:
        x = tf.random.uniform([8, 4], name="x")
        rows = tf.shape(x)[0]
        tf.fill(tf.stack([rows, 128]), 0.0, name="filled")
        tf.reshape(x, tf.stack([rows * 2, -1]), name="reshaped")
        row = tf.random.uniform([1, 4], name="row")
        axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(row), s1=tf.shape(x), name="axes")
        tf.reduce_sum(x, axes, keepdims=True, name="summed")
        tf.reduce_sum(x, axes, name="dropped")
    return graph.as_graph_def()


def known(graph_def):
    names = [node.name for node in graph_def.node]
    return Known(output_properties(graph_def, names), {node.name: node for node in graph_def.node})


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("filled", ((8, 128),)),
        ("reshaped", ((16, 2),)),
        ("axes", ((1,), (0,))),
        ("summed", ((1, 4),)),
        ("dropped", ((4,),)),
    ],
)
def test_a_shape_is_computed_from_the_shapes_of_others(graph_def, name, shapes):
    found = known(graph_def)
    assert found.computed(found.nodes[name]) == shapes


def test_what_follows_a_list_gets_its_shape_from_the_elements():
    with tf.Graph().as_default() as graph:
        x = tf.random.uniform([8, 4], name="x")
        items = tf.raw_ops.TensorListReserve(element_shape=-1, num_elements=3, element_dtype=tf.float32)
        item = tf.raw_ops.TensorListGetItem(
            input_handle=items, index=0, element_shape=-1, element_dtype=tf.float32, name="item"
        )
        tf.add(item, x, name="after")
    graph_def = graph.as_graph_def()
    inferred = output_properties(graph_def, ["after"])
    assert inferred["item"][0].shape.unknown_rank

    found = complete(inferred, graph_def, lambda node, _: ((1, 4),) if node.name == "item" else None)
    assert [dimension.size for dimension in found["item"][0].shape.dim] == [1, 4]
    assert [dimension.size for dimension in found["after"][0].shape.dim] == [8, 4]
