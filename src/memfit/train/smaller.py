"""What to try when a step has run out of memory: the next smaller ways to train, in the order of their price."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from memfit.errors import InputError
from memfit.planning.plan import Plan
from memfit.techniques.registry import technique
from memfit.techniques.technique import GRADES, Grade

_SEGMENTS = (4, 8, 16)


def smaller_plans(model: Any, plan: Plan, batch: int, numerics: Grade) -> Iterator[Plan]:
    """Plans that take less than this one, as exact as asked for, largest first.

    Args:
        model: The model, as it is without a plan.
        plan: What did not fit.
        batch: Samples in the batch that did not fit.
        numerics: How exact the result has to be.
    """
    recomputing = list(_more_segments(model, plan))
    exact = list(_smaller_slices(model, plan, batch, "exact"))
    slicing = exact or list(_smaller_slices(model, plan, batch, numerics))
    # Slices save more, for any layer; but where they give another result, recomputing comes first.
    yield from (exact or recomputing)
    if not exact:
        yield from slicing
    if slicing and recomputing:
        yield replace(recomputing[-1], micro_batch=slicing[-1].micro_batch)


def _smaller_slices(model: Any, plan: Plan, batch: int, numerics: Grade) -> Iterator[Plan]:
    size = min(plan.micro_batch or batch, batch)
    while size > 1:
        size = math.ceil(size / 2)
        if _allowed(model, "micro_batch", size, numerics):
            yield replace(plan, micro_batch=size)


def _more_segments(model: Any, plan: Plan) -> Iterator[Plan]:
    before = plan.remat if isinstance(plan.remat, int) else len(plan.remat or ())
    for count in _SEGMENTS:
        if count > before and _allowed(model, "remat", count, "exact"):
            yield replace(plan, remat=count)


def _allowed(model: Any, name: str, value: Any, numerics: Grade) -> bool:
    try:
        grade = technique(name).check(model, value).grade
    except InputError:
        return False
    return GRADES.index(grade) <= GRADES.index(numerics)
