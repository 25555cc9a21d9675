"""Whether training with some techniques is the same training, for one model and its data."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from memfit.compat.step_function import Step
from memfit.errors import MemfitError, NotExactError
from memfit.hardware.out_of_memory import one_sentence, out_of_memory
from memfit.techniques import workspace
from memfit.techniques.global_seed import random_numbers_kept
from memfit.techniques.sliced_step import SlicedStep
from memfit.techniques.together import together
from memfit.techniques.update_order import updates_in_turn
from memfit.trace.function import trace_reason
from memfit.verification.differences import Difference
from memfit.verification.remembered import remembered
from memfit.verification.samples import ROWS, SLICE, rows_of
from memfit.verification.steps import Outcome, Way, compare_steps

# What claims to give the same result. Other techniques say beforehand that they do not.
PROVEN = ("fused_batch_norm", "remat", "micro_batch")
RAN_OUT = "memory ran out on a few samples"
_FUNCTIONS = ("train_function", "test_function", "predict_function")


@dataclass(frozen=True)
class Verification:
    """Whether a plan trains a model to the same result."""

    model_name: str
    techniques: dict[str, Any]
    """What was verified."""
    differences: tuple[Difference, ...]
    """What differs, the most telling first."""
    inconclusive: str | None
    """Why it could not be verified, where it could not."""
    samples: int
    seconds: float
    remembered: bool = False
    """Whether it was verified earlier, for the same model, loss, metrics, optimizer and versions."""

    @property
    def exact(self) -> bool:
        """Whether the planned step was proven to be the plain step, to rounding."""
        return not self.differences and self.inconclusive is None

    @property
    def ran_out(self) -> bool:
        """Whether memory ran out while verifying."""
        return self.inconclusive == RAN_OUT

    @property
    def reason(self) -> str:
        """Why it is not exact, in one clause; empty where it is."""
        if self.inconclusive is not None:
            return f"it could not be verified: {self.inconclusive}"
        if not self.differences:
            return ""
        first = self.differences[0]
        more = len(self.differences) - 1
        cause = ": samples of a batch are mixed, by the loss or by a layer" if "micro_batch" in self.techniques else ""
        return f"{first}{cause}" + (f" ({more} more values differ)" if more else "")

    def __str__(self) -> str:
        # The one look to the right: printing is the reporter's work.
        from memfit.report.verification import verification_text

        return verification_text(self)


def verified(model: Any, techniques: Mapping[str, Any], batch: Any) -> Verification:
    """Compare the plain and the planned step on a few samples, or remember how they compared.

    Both run from the same state, in uneven slices. Loss, metrics and all state are compared; afterwards everything is
    as it was. Whatever a step raises makes the verification inconclusive.

    Args:
        model: A built, compiled Keras model, without the techniques.
        techniques: Values by the names of techniques. Those that do not claim the same result are part of both steps.
        batch: A batch of the user's data.
    """
    claimed = {name: value for name, value in techniques.items() if name in PROVEN}
    began = time.perf_counter()
    if not claimed:
        return Verification(model.name, claimed, (), None, 0, 0.0)
    base = {name: value for name, value in techniques.items() if name not in (*PROVEN, "workspace")} | _cheap()
    rows = rows_of(batch) or ROWS

    def compare() -> Outcome:
        return _compared(model, base, claimed, batch, rows)

    outcome, known = remembered(model, {**base, **_without_sizes(claimed)}, batch, compare)
    seconds = time.perf_counter() - began
    return Verification(model.name, claimed, outcome.differences, outcome.inconclusive, outcome.samples, seconds, known)


def verified_slices(model: Any, batch: Any) -> Verification:
    """Whether validating in slices gives the same result."""
    began = time.perf_counter()

    def compare() -> Outcome:
        sliced = nullcontext(lambda data: SlicedStep(model, SLICE, training=False).run(data))
        rows = min(ROWS, rows_of(batch) or ROWS)
        return _tried(model, _cheap(), _step(model, {}, "test_step"), sliced, batch, rows)

    outcome, known = remembered(model, {"validation": "slices"}, batch, compare)
    seconds = time.perf_counter() - began
    what = {"slices": SLICE}
    return Verification(model.name, what, outcome.differences, outcome.inconclusive, outcome.samples, seconds, known)


def refuse_inexact(verification: Verification) -> None:
    """Refuse what was not proven.

    Raises:
        NotExactError: If it differs, or could not be verified.
    """
    if verification.exact:
        return
    how = ", ".join(f"{name}={value!r}" for name, value in verification.techniques.items())
    why = verification.reason.rstrip(".")
    raise NotExactError(
        f"{how} does not train {verification.model_name!r} to the same result: {why}. "
        'Plan without it, or accept the difference with numerics="close".'
    )


def _compared(model: Any, base: dict[str, Any], claimed: dict[str, Any], batch: Any, rows: int) -> Outcome:
    few_rows = min(ROWS, rows)

    def attempt(size: int, used: int | None) -> Outcome:
        planned = {**claimed, "micro_batch": size} if "micro_batch" in claimed else claimed
        return _tried(model, base, _step(model, {}, "train_step"), _step(model, planned, "train_step"), batch, used)

    outcome = attempt(min(SLICE, max(1, few_rows - 1)), few_rows)
    if outcome.inconclusive is not None and rows > few_rows:
        # A model may fix its batch size: then its own batch and slices are used.
        whole = attempt(claimed.get("micro_batch", rows), None)
        return whole if whole.inconclusive is None else outcome
    return outcome


def _tried(model: Any, base: Mapping[str, Any], plain: Way, planned: Way, batch: Any, rows: int | None) -> Outcome:
    functions = {name: getattr(model, name, None) for name in _FUNCTIONS}
    try:
        # Once for both: another optimizer would be another one each time.
        with random_numbers_kept(), together(model, base), updates_in_turn(model):
            return compare_steps(model, plain, planned, batch, rows=rows)
    except MemfitError as error:
        return Outcome((), rows or 0, str(error))
    except Exception as error:  # noqa: BLE001 (a layer raises what it likes; a check must never end a run)
        what = RAN_OUT if out_of_memory(error) else one_sentence(f"{type(error).__name__}: {trace_reason(error)}")
        return Outcome((), rows or 0, what)
    finally:
        # Applying a plan makes Keras forget these; a fit may be in the middle of using them.
        for name, function in functions.items():
            setattr(model, name, function)


@contextmanager
def _step(model: Any, techniques: Mapping[str, Any], name: str) -> Iterator[Step]:
    with together(model, techniques):
        yield getattr(model, name)


def _cheap() -> dict[str, Any]:
    """What both steps are run with, in little time and memory: compiling them would take minutes."""
    return {"jit": False, **workspace.for_cpu()}


def _without_sizes(claimed: dict[str, Any]) -> dict[str, Any]:
    """What makes a difference to the result: not how large slices are."""
    return {**claimed, "micro_batch": "slices"} if "micro_batch" in claimed else claimed
