"""Which weights stay when the smallest go. Arrays only; no TensorFlow."""

from typing import Any, Literal

import numpy as np

Numbers = np.ndarray[tuple[int, ...], np.dtype[Any]]
Pattern = Literal["unstructured", "2:4"]
Schedule = Literal["constant", "polynomial"]


def largest(weights: Numbers, sparsity: float) -> Numbers:
    """A mask that keeps all but a share of the weights: the largest, in any place."""
    count = round(weights.size * sparsity)
    keep = np.ones(weights.size, bool)
    keep[np.argsort(np.abs(weights), axis=None, kind="stable")[:count]] = False
    return keep.reshape(weights.shape)


def two_of_four(weights: Numbers) -> Numbers:
    """A mask that keeps the two largest of every four weights that one output adds up, as sparse tensor cores want it.

    Args:
        weights: A kernel of shape (..., inputs, outputs) whose inputs are a multiple of four.
    """
    *size, inputs, outputs = weights.shape
    fours = np.abs(weights).reshape(*size, inputs // 4, 4, outputs)
    order = np.argsort(np.argsort(-fours, axis=-2, kind="stable"), axis=-2, kind="stable")
    return np.asarray(order < 2).reshape(weights.shape)


def fits_two_of_four(shape: tuple[int, ...]) -> bool:
    """Whether a kernel's inputs come in fours."""
    return len(shape) >= 2 and shape[-2] % 4 == 0


def scheduled_sparsity(final: float, schedule: Schedule, step: int, begin: int, end: int) -> float:
    """How sparse a model is at a step: all at once, or fast at first and slower towards the end (a cubic curve)."""
    if step < begin:
        return 0.0
    if schedule == "constant" or step >= end:
        return final
    left = 1 - (step - begin) / max(1, end - begin)
    return final * (1 - left**3)
