"""`memfit.applied`: a plan for the training of a model, verified on the first batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memfit.planning.plan import Plan
from memfit.techniques.technique import Grade
from memfit.train.session import Session


@contextmanager
def applied(model: Any, plan: Plan, *, numerics: Grade = "exact") -> Iterator[None]:
    """Train inside with a plan: `model.fit` does what it did, in less memory.

    On the first batch the planned step is compared with the plain one on a few samples, and refused where it differs.
    The model stays the same object with the same layers, weights and optimizer; on the way out everything that was
    changed is as it was, whatever happened inside. `evaluate` and `predict` change only by precision and jit.

    Args:
        model: A compiled Keras model.
        plan: What to change.
        numerics: How exact it has to be; `"close"` accepts a plan that changes the result.

    Raises:
        InputError: If the model cannot carry the plan; nothing has been touched then.
        NotExactError: If the plan changes the result; from `fit`, where it shows in the data only.

    Example:
        ```python
        with memfit.applied(model, memfit.Plan(micro_batch=16, remat=4)):
            model.fit(x, y, batch_size=64)
        ```
    """
    with Session(model, plan, numerics=numerics):
        yield
