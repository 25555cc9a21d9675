"""Which `tf.data` pipelines give the same data in the same order again."""

import pytest
import tensorflow as tf

from memfit.observe.feed import comes_again

NUMBERS = tf.data.Dataset.range(10)


@pytest.mark.parametrize(
    "dataset",
    [
        NUMBERS.map(lambda number: number * 2).batch(2).prefetch(1),
        NUMBERS.map(lambda number: tf.io.decode_jpeg(tf.io.read_file(tf.strings.as_string(number)))).batch(2),
    ],
    ids=["mapped", "decoded"],
)
def test_what_is_computed_comes_again(dataset):
    assert comes_again(dataset)


def test_what_is_drawn_counted_or_made_by_python_may_not():
    counted = tf.Variable(0, dtype="int64")
    spec = tf.TensorSpec([], tf.int32)
    assert not comes_again(NUMBERS.shuffle(4).batch(2))
    assert not comes_again(NUMBERS.map(lambda number: number + tf.random.uniform([], 0, 2, tf.int64)).batch(2))
    assert not comes_again(NUMBERS.map(lambda number: number + counted).batch(2))
    assert not comes_again(tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=spec).batch(2))
