"""An example batch to shapes and types: arrays, tensors, specs, `tf.data` and `PyDataset`, in any nesting."""

from typing import Any

import numpy as np

from memfit.errors import InputError
from memfit.framework import keras, tensorflow


def example_specs(data: Any, *, as_fit_casts: bool) -> Any:
    """What an example looks like, as `tf.TensorSpec`s in the same nesting.

    Of a `tf.data.Dataset` whose shapes are not all known, and of a `keras.utils.PyDataset`, one batch is read.

    Args:
        data: Arrays, tensors, `tf.TensorSpec`s, lists of numbers, a `tf.data.Dataset` or a `keras.utils.PyDataset`.
        as_fit_casts: Whether floating-point arrays become Keras's float type, as `fit` does with them.

    Raises:
        InputError: If something in it is not a tensor, or is ragged or sparse.
    """
    tf = tensorflow()
    if isinstance(data, tf.data.Dataset):
        if all(_is_sized(spec) for spec in tf.nest.flatten(data.element_spec)):
            return data.element_spec
        data, as_fit_casts = _first_batch(data), False
    elif isinstance(data, keras().utils.PyDataset):
        data = data[0]
    return _map(data, as_fit_casts)


def _map(data: Any, as_fit_casts: bool) -> Any:
    if isinstance(data, dict):
        return {name: _map(each, as_fit_casts) for name, each in data.items()}
    if isinstance(data, tuple) or (isinstance(data, list) and not _is_numbers(data)):
        mapped = [_map(each, as_fit_casts) for each in data]
        return type(data)(*mapped) if hasattr(data, "_fields") else tuple(mapped) if isinstance(data, tuple) else mapped
    return _spec(data, as_fit_casts)


def _spec(value: Any, as_fit_casts: bool) -> Any:
    tf = tensorflow()
    if value is None or isinstance(value, tf.TensorSpec):
        return value
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor | tf.RaggedTensorSpec | tf.SparseTensorSpec):
        kind = "ragged" if "Ragged" in type(value).__name__ else "sparse"
        raise InputError(f"data holds a {kind} tensor, whose size cannot be predicted. Pass a dense one of its size.")
    if isinstance(value, tf.Tensor | tf.Variable):
        return tf.TensorSpec(value.shape, value.dtype)
    array = _array(value)
    if array.dtype.kind in "OUS":
        return tf.TensorSpec(array.shape, tf.string)
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    cast = is_float and (as_fit_casts or isinstance(value, list))  # a list has no type of its own
    return tf.TensorSpec(array.shape, keras().config.floatx() if cast else array.dtype)


def _array(value: Any) -> Any:
    if isinstance(value, list | tuple):
        try:
            return np.asarray(value)
        except ValueError as error:
            raise InputError(
                "data holds lists of different lengths. Pad them to one length, or pass an array of one batch."
            ) from error
    if not hasattr(value, "shape"):
        raise InputError(f"data must hold arrays whose first dimension is the batch; got {_named(value)}.")
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _named(value: object) -> str:
    simple = isinstance(value, bool | int | float | str)
    return f"{value!r}, a Python {type(value).__name__}" if simple else f"a {type(value).__name__}"


def _is_numbers(data: Any) -> bool:
    """Whether it is a list of numbers, or of such lists: an array that was written out."""
    if isinstance(data, int | float):
        return True
    return isinstance(data, list | tuple) and len(data) > 0 and all(map(_is_numbers, data))


def _is_sized(spec: Any) -> bool:
    """Whether all dimensions but the batch are known."""
    if not isinstance(spec, tensorflow().TensorSpec):
        return False
    return spec.shape.rank is not None and None not in spec.shape[1:]


def _first_batch(dataset: Any) -> Any:
    for batch in dataset.take(1):
        return batch
    raise InputError("data is an empty tf.data.Dataset, so the shapes of a batch are unknown. Pass one batch (x, y).")
