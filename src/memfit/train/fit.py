"""`model.fit` with a plan."""

from typing import Any

from memfit.errors import InputError
from memfit.framework import tensorflow
from memfit.planning.applied import applied, check
from memfit.planning.plan import Plan

_KERAS_DEFAULT_BATCH = 32


def fit(model: Any, x: Any = None, *args: Any, plan: Plan | None = None, **kwargs: Any) -> Any:
    """Train a model with a plan; everything else is as in `model.fit`.

    Args:
        model: A built, compiled Keras model.
        x: The training data, as `model.fit` takes it.
        *args: As for `model.fit`.
        plan: What to change; `None` changes nothing.
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
    with applied(model, plan):
        return model.fit(x, *args, **kwargs)


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
