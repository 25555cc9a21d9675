"""A slice's part of the loss of the whole batch.

Most losses are a sum over samples divided by something: their number, the sum of their weights, the number of entries
that no mask hides. A slice's part is its own sum divided by the whole batch's divisor; the parts of all slices add up.
`mixed_samples` finds the losses for which they do not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from memfit.compat.patching import patched
from memfit.framework import tensorflow
from memfit.techniques.instance import replaced


class TotalsNeeded(Exception):  # noqa: N818 (not an error)
    """What a loss is divided by depends on the data of the whole batch, and was not given."""


class NotInParts(Exception):  # noqa: N818 (not an error)
    """A loss does not come as parts that add up."""


@dataclass
class LossParts:
    """What one slice has of each compiled loss, in the order of the losses."""

    values: list[Any] = field(default_factory=list)
    divisors: list[Any] = field(default_factory=list)


@contextmanager
def whole_batch_loss(
    model: Any,
    share: Any,
    divisors: Sequence[Any] | None = None,
    *,
    only_divisors: bool = False,
    added_weight: Callable[[int], Any] | None = None,
) -> Iterator[LossParts]:
    """Make every loss computed in here a part of the whole batch's.

    Args:
        model: The model whose losses are computed.
        share: The slice's share of the batch's samples.
        divisors: What each loss is divided by for the whole batch; only needed where that depends on the data.
        only_divisors: Whether only the slice's divisors are wanted.
        added_weight: How much of the n-th of `model.losses` is the slice's part; its share if not given.

    Raises:
        TotalsNeeded: If the divisors are needed and not given.
        NotInParts: If a loss reduces its values on its own, or not at all.
    """
    losses: Any = import_module("keras.src.losses.loss")
    parts = LossParts()

    def in_parts(original: Callable[..., Any]) -> Callable[..., Any]:
        def reduce(
            values: Any,
            sample_weight: Any = None,
            mask: Any = None,
            reduction: Any = "sum_over_batch_size",
            dtype: Any = None,
        ) -> Any:
            tf = tensorflow()
            reduction = losses.standardize_reduction(reduction)
            if reduction in (None, "none"):
                raise NotInParts
            values = tf.convert_to_tensor(values)
            divisor = _divisor(losses, values, sample_weight, mask, reduction, dtype)
            parts.divisors.append(tf.constant(1.0) if divisor is None else divisor)
            if divisor is None or only_divisors:
                whole = original(values, sample_weight, mask, reduction, dtype)
                value = whole if reduction == "sum" else whole * tf.cast(share, whole.dtype)
            elif divisors is None:
                raise TotalsNeeded
            else:
                summed = original(values, sample_weight, mask, "sum", dtype)
                total = tf.cast(divisors[len(parts.divisors) - 1], summed.dtype)
                value = tf.math.divide_no_nan(summed, total)
            parts.values.append(value)
            return value

        return reduce

    aggregate, position = model._aggregate_additional_loss, iter(range(10**9))

    def aggregated(loss: Any) -> Any:
        # What layers add is taken as `added_losses` found it; regularisers count once.
        weight = share if added_weight is None else added_weight(next(position))
        value = aggregate(loss)
        return value * tensorflow().cast(weight, value.dtype)

    with ExitStack() as stack:
        stack.enter_context(patched(losses, "reduce_weighted_values", in_parts))
        stack.enter_context(replaced(model, "_aggregate_additional_loss", aggregated))
        yield parts
    expected = len(model._compile_loss._flat_losses) if model._compile_loss is not None else 0
    if len(parts.values) != expected:
        raise NotInParts


def _divisor(losses: Any, values: Any, sample_weight: Any, mask: Any, reduction: Any, dtype: Any) -> Any | None:
    """What the slice alone would be divided by; `None` if that is its share of the batch, or if it is a sum."""
    tf = tensorflow()
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
