import tensorflow as tf

from memfit.trace.folding import smaller_size


def graph_of(mask, *, width=64):
    """A step at 251 samples whose mask depends on sizes alone, or on what comes in."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder("float32", [251, width])
        square = tf.ones([251, 8, 256, 256], "bool") if mask else tf.reshape(x, [251, 1, 8, width // 8]) > 0
        tf.cast(tf.logical_and(square, square), "float32")
    return graph


def test_a_step_with_a_large_mask_is_traced_with_fewer_samples():
    # 7, which divides none of 64, 8 and 256.
    assert smaller_size(graph_of(mask=True), 251) == 7


def test_the_size_divides_no_other_dimension():
    assert smaller_size(graph_of(mask=True, width=7 * 8), 251) == 11


def test_a_step_without_stays_as_it_is():
    assert smaller_size(graph_of(mask=False), 251) == 251


def test_constants_that_nothing_reads_are_left_out():
    with tf.Graph().as_default() as graph:
        tf.compat.v1.placeholder("float32", [251, 64])
        tf.zeros([251, 8, 256, 256])
    assert smaller_size(graph, 251) == 251
