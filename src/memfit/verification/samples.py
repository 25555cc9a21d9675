"""A few of the user's own samples: enough for slices of uneven size, few enough to take hardly any memory."""

from typing import Any

import numpy as np

from memfit.errors import InputError
from memfit.framework import keras, tensorflow

# Slices of two and of one: uneven, and hardly any memory.
ROWS, SLICE = 3, 2


def batch_of(data: Any, batch_size: int) -> Any:
    """One batch of what `fit` takes: a dataset's first batch, or the first rows of arrays.

    Raises:
        InputError: If there is nothing in it that has samples.
    """
    tf = tensorflow()
    if isinstance(data, tf.data.Dataset):
        return next(iter(data))
    leaves = [each for each in keras().tree.flatten(data) if each is not None]
    specs = any(isinstance(each, tf.TypeSpec) for each in leaves)
    if not leaves or specs or not all(hasattr(each, "shape") and len(each.shape) for each in leaves):
        raise InputError("data must be a batch such as (x, y), arrays with samples in rows, or a tf.data.Dataset.")
    return keras().tree.map_structure(lambda each: None if each is None else each[:batch_size], data)


def rows_of(batch: Any) -> int | None:
    """How many samples a batch has: the rows of its first tensor."""
    for each in keras().tree.flatten(batch):
        if each is not None and getattr(each, "shape", None) is not None and len(each.shape):
            return None if each.shape[0] is None else int(each.shape[0])
    return None


def few(batch: Any, count: int = ROWS) -> Any:
    """Samples spread over a batch, so that they differ; tensors without samples in rows stay whole."""
    tf = tensorflow()
    total = rows_of(batch)
    if total is None:
        raise InputError("the batch has no tensor with samples in rows.")
    picked = np.unique(np.linspace(0, total - 1, min(count, total)).astype(int))

    def rows(each: Any) -> Any:
        if each is None:
            return None
        if isinstance(each, tf.SparseTensor):
            return tf.sparse.slice(each, [0] * each.shape.rank, [len(picked), *each.shape[1:]])
        tensor = as_tensor(each)
        if not tensor.shape.rank or tensor.shape[0] != total:
            return tensor
        return tf.gather(tensor, picked)

    return keras().tree.map_structure(rows, batch)


def as_tensor(value: Any) -> Any:
    """A part of a batch as a step gets it: `fit` casts arrays of floating-point numbers to Keras's own type."""
    tf = tensorflow()
    if value is None or tf.is_tensor(value) or isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        return value
    array = np.asarray(value)
    return tf.convert_to_tensor(array.astype(keras().config.floatx()) if array.dtype.kind == "f" else array)


def synthesized(spec: Any) -> Any:
    """Samples of this structure where there are no data: random numbers, and zeros and ones for integers."""
    random = np.random.default_rng(0)

    def make(each: Any) -> Any:
        shape, dtype = each.shape.as_list(), each.dtype
        values = random.random(shape) if dtype.is_floating else random.integers(0, 2, shape)
        return tensorflow().cast(values, dtype)

    return keras().tree.map_structure(make, spec)


def spec_of(batch: Any, *, any_size: bool) -> Any:
    """The structure of a batch as `tf.TensorSpec`, for any number of samples or for this one."""
    tf = tensorflow()
    total = rows_of(batch)

    def spec(each: Any) -> Any:
        if each is None:
            return None
        if isinstance(each, tf.RaggedTensor | tf.SparseTensor):
            return tf.type_spec_from_value(each)
        shape = list(each.shape)
        if any_size and shape and shape[0] == total:
            shape[0] = None
        return tf.TensorSpec(shape, each.dtype)

    return keras().tree.map_structure(spec, batch)
