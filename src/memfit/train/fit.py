"""`model.fit` with a plan."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from memfit.errors import InputError, RecoveryWarning
from memfit.framework import tensorflow
from memfit.planning.applied import check
from memfit.planning.plan import Plan
from memfit.techniques.technique import Grade
from memfit.train.recovered import Recovered, warn
from memfit.train.session import Recovery, Session

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

    Before the first step, the planned step is compared with the plain one on a few samples of the first batch. A plan
    that changes the result is refused, unless `numerics` accepts it.

    With `recover`, when memory runs out the batch is retried with less memory and training continues: nothing is lost
    or doubled, and a `RecoveryWarning` says what was changed. Callbacks with an `on_recovery(event)` are told, too. It
    also says why a model trains without recovery: one that draws with `tf.random`, or that runs eagerly.
    While a step updates the weights, it holds a second copy of them and of the optimizer's state.

    Args:
        model: A compiled Keras model.
        x: The training data, as `model.fit` takes it.
        *args: As for `model.fit`.
        plan: What to change; `None` changes nothing.
        recover: Whether to survive running out of memory.
        numerics: How exact the plan has to be, and what replaces it when memory runs out.
        **kwargs: As for `model.fit`.

    Returns:
        Keras's history.

    Raises:
        InputError: If the model cannot carry the plan; nothing has been touched then.
        NotExactError: If the plan changes the result; nothing has been trained then.

    Example:
        ```python
        memfit.fit(model, x, y, batch_size=64, epochs=3, plan=memfit.Plan(micro_batch=16))
        ```
    """
    plan = Plan() if plan is None else plan
    if model.built:
        check(model, plan)
    batch = _batch_size(x, args, kwargs)
    if plan.micro_batch is not None and batch is not None and plan.micro_batch > batch:
        raise InputError(
            f"micro_batch={plan.micro_batch} is larger than the batch of {batch} samples: nothing would be sliced. "
            "Use at most half the batch, or plan without micro_batch."
        )
    recovery = Recovery(_notifier(_callbacks(args, kwargs))) if recover else None

    def step_aside(reason: str) -> None:
        if recover:
            warnings.warn(RecoveryWarning(f"{model.name!r} trains without recovery: {reason}."), stacklevel=2)

    with Session(model, plan, numerics=numerics, recovery=recovery, step_aside=step_aside):
        return model.fit(x, *args, **kwargs)


def _notifier(callbacks: Sequence[Any]) -> Callable[[Recovered], None]:
    def notify(event: Recovered) -> None:
        warn(event)
        for callback in callbacks:
            if hasattr(callback, "on_recovery"):
                callback.on_recovery(event)

    return notify


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
