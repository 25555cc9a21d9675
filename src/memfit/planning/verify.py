"""`memfit.verify`: is training with a plan the same training?"""

from typing import Any

from memfit.planning.applied import check
from memfit.planning.plan import Plan
from memfit.verification.samples import batch_of
from memfit.verification.verify import Verification, verified


def verify(model: Any, plan: Plan, data: Any, *, batch_size: int = 32) -> Verification:
    """Check that training with a plan gives the same result as training without, to rounding.

    The plain and the planned step run from the same state on a few samples of the data, in uneven slices. Loss,
    metrics and all state are compared: weights, optimizer, statistics, seeds, states of recurrent layers. Afterwards
    everything is as it was.

    Args:
        model: A built, compiled Keras model.
        plan: What to verify. Techniques that do not claim the same result, such as `precision`, are part of both steps.
        data: A batch such as `(x, y)` or `(x, y, sample_weight)`, arrays, or a `tf.data.Dataset` of batches.
        batch_size: How many samples of arrays make a batch.

    Returns:
        The verification; print it, or ask it whether it is `exact`.

    Raises:
        InputError: If the model cannot carry the plan, or the data cannot be used.

    Example:
        ```python
        print(memfit.verify(model, memfit.Plan(micro_batch=8), (x, y)))
        ```
    """
    check(model, plan)
    batch = batch_of(data, batch_size)
    return verified(model, plan.techniques, batch)
