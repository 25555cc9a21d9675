"""A slice's part of the loss of the whole batch.

A loss is a sum over samples divided by something: their number, the sum of their weights, the number of entries that no
mask hides. A slice's part is its own sum divided by the whole batch's divisor; the parts of all slices add up.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from memfit.errors import InputError
from memfit.framework import tensorflow


class TotalsNeeded(Exception):  # noqa: N818 (not an error)
    """What a loss is divided by depends on the data of the whole batch, and was not given."""


@dataclass
class LossParts:
    """What one slice has of each compiled loss, in the order of the losses."""

    values: list[Any] = field(default_factory=list)
    divisors: list[Any] = field(default_factory=list)


@contextmanager
def whole_batch_loss(
    model: Any, share: Any, divisors: Sequence[Any] | None = None, *, only_divisors: bool = False
) -> Iterator[LossParts]:
    """Make every loss computed in here a part of the whole batch's.

    Args:
        model: The model whose losses are computed.
        share: The slice's share of the batch's samples.
        divisors: What each loss is divided by for the whole batch; only needed where that depends on the data.
        only_divisors: Whether only the slice's divisors are wanted.

    Raises:
        TotalsNeeded: If the divisors are needed and not given.
    """
    losses: Any = import_module("keras.src.losses.loss")
    original, parts = losses.reduce_weighted_values, LossParts()

    def reduce(
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: Any = "sum_over_batch_size",
        dtype: Any = None,
    ) -> Any:
        divisor = _divisor(losses, values, sample_weight, mask, losses.standardize_reduction(reduction), dtype)
        parts.divisors.append(tensorflow().constant(1.0) if divisor is None else divisor)
        if divisor is None or only_divisors:
            whole = original(values, sample_weight, mask, reduction, dtype)
            value = whole if reduction == "sum" else whole * tensorflow().cast(share, whole.dtype)
        elif divisors is None:
            raise TotalsNeeded
        else:
            summed = original(values, sample_weight, mask, "sum", dtype)
            total = tensorflow().cast(divisors[len(parts.divisors) - 1], summed.dtype)
            value = tensorflow().math.divide_no_nan(summed, total)
        parts.values.append(value)
        return value

    aggregate = model._aggregate_additional_loss
    losses.reduce_weighted_values = reduce
    # Regularisers count once; what layers add is a mean over samples, as Keras's activity regularisers are.
    model._aggregate_additional_loss = lambda loss: _part(aggregate(loss), share)
    try:
        yield parts
    finally:
        losses.reduce_weighted_values = original
        del model._aggregate_additional_loss
    expected = len(model._compile_loss._flat_losses) if model._compile_loss is not None else 0
    if len(parts.values) != expected:
        raise InputError(
            f"{expected - len(parts.values)} of the {expected} losses of {model.name!r} reduce their values on their "
            "own, and whether to a mean or a sum cannot be seen from outside. Subclass keras.losses.Loss with call() "
            "only, or plan without micro_batch."
        )


def _part(value: Any, share: Any) -> Any:
    return value * tensorflow().cast(share, value.dtype)


def _divisor(losses: Any, values: Any, sample_weight: Any, mask: Any, reduction: Any, dtype: Any) -> Any | None:
    """What the slice alone would be divided by; `None` if that is its share of the batch, or if it is a sum."""
    tf = tensorflow()
    if reduction in (None, "none"):
        raise InputError(
            'a loss with reduction="none" has no single value to train on. Use "sum", "mean" or "sum_over_batch_size".'
        )
    if reduction == "sum" or not len(values.shape):
        return None
    if reduction == "mean_with_sample_weight" and (sample_weight is not None or mask is not None):
        weight = losses.apply_mask(
            None if sample_weight is None else tf.cast(sample_weight, dtype), mask, dtype=dtype, reduction=reduction
        )
        _, weight = losses.squeeze_or_expand_to_same_rank(values, tf.cast(weight, dtype))
        return tf.reduce_sum(weight)
    if mask is None:
        return None
    # Keras divides by the entries the mask leaves, in units of the values.
    entries = tf.cast(tf.size(values), dtype) / tf.cast(tf.size(mask), dtype)
    return tf.reduce_sum(tf.cast(mask, dtype)) * entries
