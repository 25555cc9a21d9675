"""The order in which samples come: their numbers, shuffled anew in every epoch, reproducibly and without a buffer.

`Dataset.shuffle` over all numbers would hold each as a tensor of its own. A permutation that is computed holds nothing.
"""

from typing import Any

from memfit.data.graph import as_written
from memfit.framework import tensorflow


def batches(count: int, batch_size: int, seed: int | None, *, shuffle: bool) -> Any:
    """`(indices, key)` of every batch of an epoch; the key is the epoch's own random number.

    Args:
        count: How many samples there are.
        batch_size: How many numbers a batch has; the last one may have fewer.
        seed: Same seed: same orders and keys, epoch for epoch.
        shuffle: Whether each epoch has its own order.
    """
    tf = tensorflow()
    last = tf.constant(count - 1, tf.int64)
    keys = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1)

    def epoch(key: Any) -> Any:
        pair = tf.stack([key, tf.constant(count, tf.int64)])

        def batch(start: Any) -> Any:
            places = tf.range(start, tf.minimum(start + batch_size, count))
            return (tf.random.experimental.index_shuffle(places, pair, last) if shuffle else places), key

        return tf.data.Dataset.range(0, count, batch_size).map(as_written(batch))

    steps = -(-count // batch_size)
    return keys.flat_map(as_written(epoch)).apply(tf.data.experimental.assert_cardinality(steps))


def sample_seeds(key: Any, indices: Any) -> Any:
    """A seed for each of these samples in one epoch, the same whoever computes it and when."""
    tf = tensorflow()
    return tf.stack([tf.broadcast_to(key, tf.shape(indices)), indices], axis=-1)
