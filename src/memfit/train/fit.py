"""`model.fit` with a plan."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from memfit.errors import InputError
from memfit.framework import tensorflow
from memfit.planning.applied import applied, check
from memfit.planning.plan import Plan
from memfit.techniques.technique import Grade
from memfit.train.recovery import Recovered, Recovering, refuse_unrecoverable, warn

_KERAS_DEFAULT_BATCH = 32
_CALLBACKS = 4  # their place behind x: y, batch_size, epochs, verbose, callbacks


def fit(
    model: Any,
    x: Any = None,
    *args: Any,
    plan: Plan | None = None,
    recover: bool = False,
    numerics: Grade = "exact",
    **kwargs: Any,
) -> Any:
    """Train a model with a plan; everything else is as in `model.fit`.

    With `recover`, when memory runs out the batch is done again in a smaller way and training goes on: nothing is lost
    or doubled, and a `RecoveryWarning` says what was changed. Callbacks with an `on_recovery(event)` are told, too.
    A step takes longer for that, because nothing is written before everything is computed.

    Args:
        model: A built, compiled Keras model.
        x: The training data, as `model.fit` takes it.
        *args: As for `model.fit`.
        plan: What to change; `None` changes nothing.
        recover: Whether to survive running out of memory.
        numerics: How exact a smaller way may be then.
        **kwargs: As for `model.fit`.

    Returns:
        Keras's history.

    Raises:
        InputError: If the model cannot carry the plan; nothing has been touched then.

    Example:
        ```python
        memfit.fit(model, x, y, batch_size=64, epochs=3, plan=memfit.Plan(micro_batch=16))
        ```
    """
    plan = Plan() if plan is None else plan
    check(model, plan)
    batch = _batch_size(x, args, kwargs)
    if plan.micro_batch is not None and batch is not None and plan.micro_batch > batch:
        raise InputError(
            f"micro_batch={plan.micro_batch} is larger than the batch of {batch} samples: nothing would be sliced. "
            "Use at most half the batch, or plan without micro_batch."
        )
    way = recovering(model, plan, numerics, _callbacks(args, kwargs)) if recover else applied(model, plan)
    with way:
        return model.fit(x, *args, **kwargs)


def recovering(model: Any, plan: Plan, numerics: Grade, callbacks: Sequence[Any] = ()) -> AbstractContextManager[Any]:
    """A plan applied so that training survives running out of memory.

    Raises:
        InputError: If the model's steps cannot be tried again.
    """

    def notify(event: Recovered) -> None:
        warn(event)
        for callback in callbacks:
            if hasattr(callback, "on_recovery"):
                callback.on_recovery(event)

    refuse_unrecoverable(model)
    return Recovering(model, plan, numerics=numerics, notify=notify)


def _callbacks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    given = args[_CALLBACKS] if len(args) > _CALLBACKS else kwargs.get("callbacks")
    if isinstance(given, Sequence):
        return list(given)
    return [*getattr(given, "callbacks", [given] if given is not None else [])]


def _batch_size(x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The batch size where it can be told beforehand: arrays, and datasets of one batch size."""
    tf = tensorflow()
    if isinstance(x, tf.data.Dataset):
        shapes = [each.shape for each in tf.nest.flatten(x.element_spec) if hasattr(each, "shape")]
        return next((shape[0] for shape in shapes if shape.rank), None)
    given = args[1] if len(args) > 1 else kwargs.get("batch_size")
    if given is not None:
        return int(given)
    return _KERAS_DEFAULT_BATCH if all(hasattr(each, "shape") for each in tf.nest.flatten(x)) else None
