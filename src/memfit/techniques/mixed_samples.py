"""Whether a loss mixes samples: whether the loss of a batch is more than the sum of its slices' parts.

Tried on a few made-up samples, because neither the class nor the name of a loss tells. Dice and Tversky reduce over the
batch, contrastive losses compare samples, a function may compute its own mean: all of these mix samples.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from memfit.framework import keras, tensorflow
from memfit.techniques import made_up_data
from memfit.techniques.made_up_data import CUT, SAMPLES, in_fresh_thread
from memfit.techniques.whole_batch_loss import TotalsNeeded, whole_batch_loss

_SLICES = ((0, CUT), (CUT, SAMPLES))
# Rounding of a sum of many float32 numbers stays below; what mixed samples differ by is far above.
_TOLERANCE = {"float32": 1e-4, "float64": 1e-8}
_TRIALS = 4


def mixes_samples(model: Any, y: Any, y_pred: Any, sample_weight: Any) -> bool:
    """Whether the compiled loss must be computed on the whole batch.

    Args:
        model: A compiled model whose losses are built.
        y: Targets of a traced step; only shapes and types matter, samples along a first dimension of unknown size.
        y_pred: Predictions, with Keras's masks where they have one.
        sample_weight: Weights, or `None`.
    """
    if model._compile_loss is None:
        return False
    try:
        return bool(in_fresh_thread(lambda: _mixes(model, y, y_pred, sample_weight)))
    except Exception:  # noqa: BLE001 (whatever the loss does with made-up data, on the whole batch it is right)
        return True


def adds_up(model: Any, y: Any, y_pred: Any, sample_weight: Any) -> bool:
    """Whether the compiled metrics may be updated slice by slice; see `mixes_samples` for the arguments."""
    if model._compile_metrics is None:
        return True
    try:
        return bool(in_fresh_thread(lambda: _metrics_add_up(model, y, y_pred, sample_weight)))
    except Exception:  # noqa: BLE001 (as above)
        return False


def _mixes(model: Any, y: Any, y_pred: Any, sample_weight: Any) -> bool:
    conclusive = False
    for trial in range(_TRIALS):
        batch = _batch(y, y_pred, sample_weight, trial)
        whole = _loss_and_gradients(model, batch)
        if not all(np.isfinite(each).all() for each in whole):
            continue
        parts = [_part_of_loss(model, batch, start, stop) for start, stop in _SLICES]
        value = sum(each[0] for each in parts)
        joined = [np.concatenate(each) for each in zip(*(each[1:] for each in parts), strict=True)]
        conclusive = True
        if not _all_close(whole, [value, *joined]):
            return True
    return not conclusive


def _batch(y: Any, y_pred: Any, sample_weight: Any, trial: int) -> Any:
    random = np.random.default_rng(trial)
    return (
        made_up_data.targets(y, y_pred, random, whole=trial >= _TRIALS // 2),
        made_up_data.predictions(y_pred, random, logits=bool(trial % 2)),
        made_up_data.inputs(sample_weight, random),
        made_up_data.masks([getattr(each, "_keras_mask", None) for each in keras().tree.flatten(y_pred)], random),
    )


def _tensors(batch: Any) -> tuple[Any, Any, Any]:
    """Targets, predictions with their masks, and weights."""
    tree = keras().tree
    target, predicted, weight = (tree.map_structure(_tensor, each) for each in batch[:3])
    for tensor, mask in zip(tree.flatten(predicted), batch[3], strict=True):
        if mask is not None:
            tensor._keras_mask = _tensor(mask)
    return target, predicted, weight


def _loss_and_gradients(model: Any, batch: Any, **parts: Any) -> list[Any]:
    """The compiled loss and its gradients with respect to the predictions, as arrays."""
    tf = tensorflow()
    target, predicted, weight = _tensors(batch)
    flat = keras().tree.flatten(predicted)
    with keras().StatelessScope(), tf.GradientTape() as tape:
        tape.watch([each for each in flat if each.dtype.is_floating])
        if parts:
            with whole_batch_loss(model, **parts):
                loss = model._compile_loss(target, predicted, weight)
        else:
            loss = model._compile_loss(target, predicted, weight)
    gradients = tape.gradient(loss, flat, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [np.asarray(tf.convert_to_tensor(each)) for each in (loss, *gradients)]


def _part_of_loss(model: Any, batch: Any, start: int, stop: int) -> list[Any]:
    rows, share = made_up_data.part(batch, start, stop), (stop - start) / SAMPLES
    try:
        return _loss_and_gradients(model, rows, share=share)
    except TotalsNeeded:
        return _loss_and_gradients(model, rows, share=share, divisors=_divisors(model, batch))


def _divisors(model: Any, batch: Any) -> list[Any]:
    """What each loss is divided by for the whole batch, added up over slices as a step does."""
    totals: list[Any] | None = None
    for start, stop in _SLICES:
        target, predicted, weight = _tensors(made_up_data.part(batch, start, stop))
        with keras().StatelessScope(), whole_batch_loss(model, 1.0, only_divisors=True) as parts:
            model._compile_loss(target, predicted, weight)
        new = [np.asarray(each) for each in parts.divisors]
        totals = new if totals is None else [sum(each) for each in zip(totals, new, strict=True)]
    return totals or []


def _metrics_add_up(model: Any, y: Any, y_pred: Any, sample_weight: Any) -> bool:
    tf = tensorflow()
    variables = model._compile_metrics.variables

    def counted(batch: Any, start: int, stop: int) -> list[Any]:
        target, predicted, weight = _tensors(made_up_data.part(batch, start, stop))
        ones = [(each, tf.ones(each.shape, each.dtype)) for each in variables]
        with keras().StatelessScope(ones) as scope:
            model._compile_metrics.update_state(target, predicted, weight)
            return [np.asarray(scope.get_current_value(each)) - 1 for each in variables]

    for trial in range(_TRIALS):
        batch = _batch(y, y_pred, sample_weight, trial)
        parts = zip(*(counted(batch, start, stop) for start, stop in _SLICES), strict=True)
        if not _all_close(counted(batch, 0, SAMPLES), [sum(each) for each in parts]):
            return False
    return True


def _tensor(value: Any) -> Any:
    return None if value is None else tensorflow().convert_to_tensor(value)


def _all_close(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(_close(*each) for each in zip(first, second, strict=True))


def _close(first: Any, second: Any) -> bool:
    precision = "float64" if np.asarray(first).dtype == np.float64 else "float32"
    scale = max(float(np.abs(first).max(initial=0)), 1e-30)
    return bool(np.abs(first - second).max(initial=0) <= _TOLERANCE[precision] * scale)
