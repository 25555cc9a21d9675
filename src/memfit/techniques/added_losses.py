"""What layers add with `add_loss`: whether each is a mean or a sum over the samples of a call.

Keras's own activity regularisers are means. A layer of the user's may add a sum. Tried on a few made-up samples: the
loss of all of them is either the mean or the sum of the slices' losses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from memfit.compat.scope import state_scope
from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.techniques import made_up_data
from memfit.techniques.made_up_data import CUT, SAMPLES, in_fresh_thread
from memfit.techniques.rehearsal import Rehearsal
from memfit.techniques.whole_batch_random import Rows, whole_batch_random

Kind = Literal["mean", "sum"]
_SLICES = ((0, CUT), (CUT, SAMPLES))
# Rounding of a deep float32 network on four samples stays below.
_TOLERANCE = 1e-3


def added_losses(model: Any) -> list[Any]:
    """What was added in the call before, in the order of `model.losses`, without what regularises weights."""
    found = [*model._get_own_losses()]
    for layer in model._flatten_layers(include_self=False):
        found += layer._get_own_losses()
    return found


def kinds(model: Any, x: Any, *, training: bool) -> list[Kind] | None:
    """How the added losses of slices come together.

    Args:
        model: The model.
        x: Inputs of a traced step; only shapes and types matter.
        training: Whether it is called for training.

    Returns:
        A kind for each of `added_losses`, or `None` if the model cannot be run on made-up data.

    Raises:
        InputError: If one is neither a mean nor a sum over samples.
    """
    try:
        with _kept_apart(model):
            whole, twice, *parts = in_fresh_thread(lambda: _values(model, x, training=training))
    except Exception:  # noqa: BLE001 (whatever made-up data does to a model, it is not the user's mistake)
        return None
    normalised = any(isinstance(each, keras().layers.BatchNormalization) for each in model._flatten_layers())
    return [_kind(model, *each, exact=not normalised) for each in zip(whole, twice, *parts, strict=True)]


@contextmanager
def _kept_apart(model: Any) -> Iterator[None]:
    """Calls inside do not change what the layers know about the call that is being traced."""
    known = [(layer, {*layer._loss_ids}, [*layer._losses]) for layer in model._flatten_layers()]
    try:
        yield
    finally:
        for layer, ids, losses in known:
            layer._loss_ids.clear()
            layer._loss_ids.update(ids)
            layer._losses[:] = losses


def _kind(model: Any, whole: float, twice: float, *parts: float, exact: bool) -> Kind:
    shares = [(stop - start) / SAMPLES for start, stop in _SLICES]
    mean = sum(share * part for share, part in zip(shares, parts, strict=True))
    if not np.isfinite(whole) or _close(whole, mean):
        return "mean"
    if _close(whole, sum(parts)):
        return "sum"
    if exact:
        raise InputError(
            f"a layer of {model.name!r} adds a loss with add_loss() that is neither a mean nor a sum over the samples "
            "of the batch, so the slices' losses do not make up the batch's. Add a mean over samples, or plan without "
            "micro_batch."
        )
    # Normalised over a slice, values differ; the same samples twice have the same statistics.
    return "sum" if abs(twice - 2 * whole) < abs(twice - whole) else "mean"


def _values(model: Any, x: Any, *, training: bool) -> list[list[float]]:
    """The added losses of all samples, of all samples twice, and of each slice."""
    tf, tree = tensorflow(), keras().tree
    made = made_up_data.inputs(x, np.random.default_rng(0))

    def losses(x: Any, start: Any, count: Any) -> list[Any]:
        rows = tf.shape(next(each for each in tree.flatten(x) if each is not None))[0]
        place = Rows(count, start, rows, 1)
        with whole_batch_random(place, Rehearsal(one_unknown=True), jit=False), state_scope(()):
            model(x, training=training) if model._call_has_training_arg else model(x)
            return [tf.reduce_sum(tf.cast(each, tf.float64)) for each in added_losses(model)]

    spec = tree.map_structure(
        lambda each: None if each is None else tf.TensorSpec([None, *each.shape[1:]], each.dtype), made
    )
    number = tf.TensorSpec((), tf.int32)
    function = tf.function(losses, input_signature=[spec, number, number], autograph=False)

    def run(values: Any, start: int, count: int) -> list[float]:
        tensors = tree.map_structure(lambda each: None if each is None else tf.convert_to_tensor(each), values)
        return [float(each) for each in function(tensors, tf.constant(start), tf.constant(count))]

    twice = tree.map_structure(lambda each: None if each is None else np.concatenate([each, each]), made)
    slices = [run(made_up_data.part(made, start, stop), start, SAMPLES) for start, stop in _SLICES]
    return [run(made, 0, SAMPLES), run(twice, 0, 2 * SAMPLES), *slices]


def _close(first: float, second: float) -> bool:
    return abs(first - second) <= _TOLERANCE * max(abs(first), abs(second), 1e-12)
