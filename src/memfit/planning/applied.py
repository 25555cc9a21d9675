"""A plan put onto a model for a while, as it is: whether it is exact is verified elsewhere."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from memfit.errors import BudgetTooSmallError, InputError
from memfit.planning.plan import Plan
from memfit.planning.prediction import Prediction
from memfit.techniques.technique import Verdict
from memfit.techniques.together import fingerprint, together, verdicts
from memfit.trace.tracer import refuse_unready
from memfit.units import format_size


@contextmanager
def applied(model: Any, plan: Plan) -> Iterator[None]:
    """Train inside with a plan: `model.fit` does what it did, in less memory.

    The model stays the same object with the same layers, weights and optimizer; on the way out everything that was
    changed is as it was, whatever happened inside. `evaluate` and `predict` change only by precision and jit.

    Args:
        model: A built, compiled Keras model.
        plan: What to change.

    Raises:
        InputError: If the model cannot carry the plan; nothing has been touched then.

    Example:
        ```python
        with memfit.applied(model, memfit.Plan(micro_batch=16, remat=4)):
            model.fit(x, y, batch_size=64)
        ```
    """
    check(model, plan)
    with together(model, plan.techniques):
        yield


def applied_from(model: Any, values: dict[str, Any]) -> AbstractContextManager[None]:
    """The same from a plan's JSON values, for another process."""
    return applied(model, Plan.from_dict(values))


def check(model: Any, plan: Plan) -> dict[str, Verdict]:
    """How exact each technique of a plan is for a model.

    Raises:
        InputError: If the model cannot carry one, or the plan was made for another model.
        BudgetTooSmallError: If it is a plan that nothing was found for.
    """
    if not isinstance(plan, Plan):
        raise InputError(f"plan must be a memfit.Plan, got {type(plan).__name__}. Plan.load(path) reads a saved one.")
    if plan.prediction is not None and not plan.prediction.feasible:
        raise BudgetTooSmallError(_what_would_fit(plan.prediction))
    if not plan.techniques:
        return {}
    refuse_unready(model)
    if plan.model is not None and plan.model != fingerprint(model):
        raise InputError(
            f"the plan was made for the model {plan.model}, and {model.name!r} is {fingerprint(model)}: layers or "
            "shapes differ. Make a plan for this model, or drop the plan's model to use it anyway."
        )
    return verdicts(model, plan.techniques)


def _what_would_fit(prediction: Prediction) -> str:
    needs = [f'{format_size(size)} at numerics="{grade}"' for grade, size in prediction.smallest_budgets.items()]
    return (
        f"no way was found to train {prediction.model_name!r} at batch {prediction.batch_size} in "
        f"{format_size(prediction.budget)}: it needs {', '.join(needs)}. Plan again with one of these"
        f"{f', or with a batch of at most {prediction.largest_batch}' if prediction.largest_batch else ''}."
    )
