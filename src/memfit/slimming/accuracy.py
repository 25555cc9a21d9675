"""How many labels a model, or a quantized file, gets right."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from memfit.errors import InputError
from memfit.framework import tensorflow


def accuracy(predict: Callable[[Any], Any], data: Any, batch_size: int) -> float:
    """The share of labels predicted right.

    Args:
        predict: From a batch of inputs to predictions.
        data: Arrays `(x, y)` or a dataset of batches `(x, y)`; labels are class numbers or one-hot.
        batch_size: How many samples of arrays are predicted at a time.
    """
    right = total = 0
    for inputs, labels in batches(data, batch_size):
        found, wanted = np.asarray(predict(inputs)), np.asarray(labels)
        if found.ndim < 2:
            raise InputError(f"predictions of shape {found.shape} are no classes: expected (samples, ..., classes).")
        if found.shape[-1] == 1:
            found = (found[..., 0] > 0.5).astype(int)
            wanted = wanted.reshape(found.shape)
        else:
            wanted = wanted.argmax(-1) if wanted.shape == found.shape else wanted
            found = found.argmax(-1)
        if wanted.size != found.size:
            raise InputError(
                f"labels of shape {wanted.shape} do not go with predictions of {found.shape}: expected one class "
                "number, or one row of 0 and 1, for each."
            )
        right += int((found == wanted.reshape(found.shape)).sum())
        total += found.size
    if not total:
        raise InputError("the data is empty: expected at least one batch of inputs and labels.")
    return right / total


def batches(data: Any, batch_size: int) -> Iterator[tuple[Any, Any]]:
    """Inputs and labels, batch by batch."""
    if isinstance(data, tensorflow().data.Dataset):
        for batch in data:
            if not isinstance(batch, tuple) or len(batch) < 2:
                raise InputError("the dataset has no labels: expected batches of (x, y).")
            yield batch[0], batch[1]
        return
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InputError(
            f"data must be arrays (x, y) or a tf.data.Dataset of batches (x, y); got {type(data).__name__}."
        )
    inputs, labels = (np.asarray(each) for each in data)
    for start in range(0, len(inputs), batch_size):
        yield inputs[start : start + batch_size], labels[start : start + batch_size]
