"""Micro-batches: the batch asked for, a slice at a time inside one step, and one optimizer step at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras
from memfit.techniques.instance import refuse_own_train_step, retraced
from memfit.techniques.sliced_step import SlicedStep
from memfit.techniques.technique import Verdict

# Layers that mix the samples of a batch: normalised over a slice, the result is another one.
_MIXING = ("BatchNormalization", "SyncBatchNormalization")


def check(model: Any, value: Any) -> Verdict:
    """Refuse what cannot be sliced; say what a slice sees differently."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"micro_batch must be a whole number of samples, at least 1; got {value!r}.")
    refuse_own_train_step(model, "micro_batch")
    trainer = keras().Model
    if type(model).compute_loss is not trainer.compute_loss:
        raise InputError(
            f"{model.name!r} has a compute_loss of its own, and whether that is a mean or a sum over samples cannot be "
            "seen from outside. Give the loss to compile() and extra terms to add_loss(), or plan without micro_batch."
        )
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise InputError("micro_batch does not work under a distribution strategy with several replicas yet.")
    mixing = [layer.name for layer in model._flatten_layers() if type(layer).__name__ in _MIXING and layer.trainable]
    if mixing:
        return Verdict(
            "close",
            f"{len(mixing)} batch normalisations (such as {mixing[0]!r}) normalise each slice of {value} alone; their "
            "moving statistics are those of the whole batch",
        )
    return Verdict("exact", f"every layer treats samples independently; {value} at a time, one optimizer step a batch")


@contextmanager
def applied(model: Any, value: int) -> Iterator[None]:
    """Give the model a training step that works in slices."""

    def train_step(data: Any) -> Any:
        return SlicedStep(model, value).run(data)

    # Whoever traces it takes a whole number of slices.
    train_step.slice_rows = value  # type: ignore[attr-defined]
    with retraced(model):
        model.train_step = train_step
        try:
            yield
        finally:
            del model.train_step
