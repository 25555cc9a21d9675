"""What to try when a step has run out of memory, in order of price; each is verified before it is used."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from memfit.errors import InputError
from memfit.planning.plan import Plan
from memfit.techniques import workspace
from memfit.techniques.instance import has_own_step
from memfit.techniques.registry import technique
from memfit.techniques.technique import GRADES, Grade
from memfit.verification.samples import rows_of
from memfit.verification.verify import verified, verified_slices

_SEGMENTS = (4, 8, 16)


class Fallbacks:
    """The fallbacks of one model, each given out once.

    Args:
        model: A compiled Keras model.
        numerics: How exact they have to be.
    """

    def __init__(self, model: Any, numerics: Grade) -> None:
        self._model, self._numerics = model, numerics
        self._left: list[Plan] | None = None
        self.tried: list[str] = []
        """Each plan that was looked at, and why it was not used where it was not."""
        self.validation_slice: int | None = None
        """Samples of a validation batch worked on at a time; `None` is all of them."""

    @property
    def exhausted(self) -> bool:
        """Whether all have been given out."""
        return self._left == []

    def next_plan(self, plan: Plan, batch: Any, *, convolves: bool = False) -> Plan | None:
        """A plan that takes less than this one and trains to the same result; `None` where there is none left.

        Args:
            plan: What did not fit; the model does not carry it at the moment.
            batch: The batch that did not fit.
            convolves: Whether the step has gradients of convolutions.
        """
        if self._left is None:
            rows = rows_of(batch)
            capped = replace(plan, **workspace.for_cpu()) if convolves else plan
            self._left = [] if capped == plan else [capped]
            self._left += [] if rows is None else smaller_plans(self._model, capped, rows, self._numerics)
        while self._left:
            candidate = self._left.pop(0)
            verification = None
            if self._numerics == "exact":
                verification = verified(self._model, candidate.techniques, batch)
            how = ", ".join(f"{name}={value!r}" for name, value in candidate.techniques.items())
            if verification is None or verification.exact:
                self.tried.append(how)
                return candidate
            self.tried.append(f"{how} ({verification.reason})")
            if verification.ran_out:
                # Not even a few samples fit: what takes the memory is not what a plan can make smaller.
                self._left.clear()
        return None

    def next_slice(self, batch: Any) -> bool:
        """Halve the slices that validation is worked through in; false where that is not possible."""
        size = min(self.validation_slice or rows_of(batch) or 1, rows_of(batch) or 1)
        if size <= 1 or has_own_step(self._model, "test_step"):
            return False
        if (
            self._numerics == "exact"
            and self.validation_slice is None
            and not verified_slices(self._model, batch).exact
        ):
            return False
        self.validation_slice = math.ceil(size / 2)
        return True


def smaller_plans(model: Any, plan: Plan, batch: int, numerics: Grade) -> Iterator[Plan]:
    """Plans that take less than this one, as exact as asked for by their own claim, largest first.

    Args:
        model: The model, without a plan.
        plan: What did not fit.
        batch: Samples in the batch that did not fit.
        numerics: How exact the result has to be.
    """
    recomputing = list(_other_segments(model, plan))
    exact = list(_smaller_slices(model, plan, batch, "exact"))
    slicing = exact or list(_smaller_slices(model, plan, batch, numerics))
    # Slices save more, for any layer; but where they give another result, recomputing comes first.
    yield from (exact or recomputing)
    yield from (recomputing if exact else slicing)
    if slicing and recomputing:
        most = max(recomputing, key=_segment_count)
        yield replace(most, micro_batch=slicing[-1].micro_batch)


def _smaller_slices(model: Any, plan: Plan, batch: int, numerics: Grade) -> Iterator[Plan]:
    size = min(plan.micro_batch or batch, batch)
    while size > 1:
        size = math.ceil(size / 2)
        if _allowed(model, "micro_batch", size, numerics):
            yield replace(plan, micro_batch=size)


def _other_segments(model: Any, plan: Plan) -> Iterator[Plan]:
    """More segments, then fewer: which number takes least is not known, and each leaves other holes between tensors."""
    before = _segment_count(plan)
    more = [each for each in _SEGMENTS if each > before]
    fewer = [each for each in _SEGMENTS if each < before]
    for count in (*more, *(fewer if isinstance(plan.remat, int) else ())):
        if _allowed(model, "remat", count, "exact"):
            yield replace(plan, remat=count)


def _segment_count(plan: Plan) -> int:
    return plan.remat if isinstance(plan.remat, int) else len(plan.remat or ())


def _allowed(model: Any, name: str, value: Any, numerics: Grade) -> bool:
    try:
        grade = technique(name).check(model, value).grade
    except InputError:
        return False
    return GRADES.index(grade) <= GRADES.index(numerics)
