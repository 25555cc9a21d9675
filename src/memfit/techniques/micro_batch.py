"""Micro-batches: the batch asked for, a slice at a time inside one step, and one optimizer step at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memfit.compat.scope import state_scope
from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.techniques.instance import refuse_own_train_step, replaced, retraced
from memfit.techniques.mixed_samples import mixes_samples
from memfit.techniques.sliced_step import SlicedStep, own
from memfit.techniques.technique import Verdict
from memfit.techniques.update_order import updates_in_turn

# Layers that mix the samples of a batch: normalised over a slice, the result is another one.
_MIXING = ("BatchNormalization", "SyncBatchNormalization")


def check(model: Any, value: Any) -> Verdict:
    """Refuse what cannot be sliced; say what a slice sees differently."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"micro_batch must be a whole number of samples, at least 1; got {value!r}.")
    refuse_own_train_step(model, "micro_batch")
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
    """Give the model a training step that works in slices.

    After it was traced, `model.train_step.passes` says how often a slice runs forward: twice where the loss mixes
    samples.
    """

    def train_step(data: Any) -> Any:
        step = SlicedStep(model, value)
        result = step.run(data)
        train_step.passes = step.passes  # type: ignore[attr-defined]
        return result

    # Whoever traces it takes a whole number of slices.
    train_step.slice_rows = value  # type: ignore[attr-defined]
    train_step.passes = None  # type: ignore[attr-defined]
    with retraced(model), replaced(model, "train_step", train_step), updates_in_turn(model):
        yield


def passes(model: Any, data: Any) -> int:
    """How often a step in slices runs the model forward: 1, or 2 where the loss mixes the samples of a batch.

    Args:
        model: A built, compiled Keras model.
        data: A batch as `fit` gives it to `train_step`: tensors, arrays or `tf.TensorSpec`, of any size.
    """
    tf, tree = tensorflow(), keras().tree
    if own(model, "compute_loss"):
        return 2

    def spec(each: Any) -> Any:
        return None if each is None else tf.TensorSpec([None, *each.shape[1:]], each.dtype)

    specs = tree.map_structure(spec, keras().utils.unpack_x_y_sample_weight(data))
    found: list[int] = []

    def traced(x: Any, y: Any, sample_weight: Any) -> None:
        if any(part is not None and not part.built for part in (model._compile_loss, model._compile_metrics)):
            model._symbolic_build(data_batch=(x, y, sample_weight))
        with state_scope(()):
            predictions = model(x, training=True) if model._call_has_training_arg else model(x)
        found.append(2 if mixes_samples(model, y, predictions, sample_weight) else 1)

    tf.function(traced, autograph=False).get_concrete_function(*specs)
    return found[0]
