"""Changing one model object for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras

_FUNCTIONS = ("train_function", "test_function", "predict_function")
_ABSENT = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give one object another attribute for a while, and give back exactly what it had.

    An object without an attribute of its own reads its class's again afterwards. Keras's and TensorFlow's tracking of
    attributes does not see the change, so that it works on locked models and leaves nothing in checkpoints.

    Args:
        owner: A model, layer, metric or optimizer.
        name: The attribute, such as `"call"`.
        value: What it is inside. For a method: a function without `self`.
    """
    if hasattr(getattr(type(owner), name, None), "__set__"):
        # A property: what it stores is its own matter.
        before = getattr(owner, name)
        setattr(owner, name, value)
        try:
            yield
        finally:
            setattr(owner, name, before)
        return
    attributes = vars(owner)
    before = attributes.get(name, _ABSENT)
    attributes[name] = value
    try:
        yield
    finally:
        if before is _ABSENT:
            attributes.pop(name, None)
        else:
            attributes[name] = before


@contextmanager
def retraced(model: Any) -> Iterator[None]:
    """Have Keras trace the model's steps anew inside, and again afterwards."""
    _forget(model)
    try:
        yield
    finally:
        _forget(model)


def _forget(model: Any) -> None:
    for name in _FUNCTIONS:
        setattr(model, name, None)


def has_own_step(model: Any, name: str) -> bool:
    """Whether a model has a `train_step` or `test_step` that is not Keras's: of its class, or set on the object."""
    own = vars(model).get(name)
    # One that works in slices is memfit's.
    set_by_user = own is not None and not hasattr(own, "slice_rows")
    return set_by_user or getattr(type(model), name) is not getattr(keras().Model, name)


def refuse_own_train_step(model: Any, technique: str) -> None:
    """Refuse a model whose training step is not Keras's."""
    if has_own_step(model, "train_step"):
        raise InputError(
            f"{technique} cannot be put into the train_step of {type(model).__name__}, which is not Keras's own. "
            "Move what it does into compute_loss, compute_metrics, add_loss or a layer, or plan without it; "
            "mixed_bfloat16 and jit work with any train_step."
        )
