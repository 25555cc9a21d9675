"""What differs between two runs of one step, beyond what rounding explains. Arithmetic on arrays; no TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["result", "state"]
Arrays = Mapping[str, np.ndarray]

# What summing in another order may change, by the number of bits of a type, relative to how far a value moved.
_ROUNDING = {64: 1e-7, 32: 1e-3, 16: 5e-2, 8: 0.5}
# A difference that is this many times what a change of the weights by rounding makes is not rounding.
_TIMES_NOISE = 10
# A value that rounding may move further than this share says nothing.
_MOST_ALLOWED = 0.5
# Below this, squares of single-precision numbers become zero.
_SMALLEST = 1e-15


@dataclass(frozen=True)
class Difference:
    """One value that the planned step computes differently."""

    kind: Kind
    """`result` is a loss or a metric, `state` a variable."""
    name: str
    relative: float
    """The size of the difference, against how far the plain step moved the value."""

    def __str__(self) -> str:
        what = "" if self.kind == "result" else "the update of "
        return f"{what}{self.name} differs by {percent(self.relative)}"


@dataclass(frozen=True)
class StepRun:
    """One run of a step: results by name, and all state before and after."""

    results: Arrays
    before: Arrays
    after: Arrays


def differences(plain: StepRun, noisy: StepRun, planned: StepRun, *, bits: int = 32) -> list[Difference]:
    """What a planned step does differently, largest first.

    Args:
        plain: The plain step.
        noisy: The plain step again, with its weights changed by about what rounding changes.
        planned: The planned step, from the same state as `plain`.
        bits: Bits of the type the model computes in.
    """
    found: list[Difference] = []
    for name, value in plain.results.items():
        zero = np.zeros_like(value)
        relative = _relative((zero, value), (zero, noisy.results[name]), planned.results.get(name), bits)
        if relative:
            found.append(Difference("result", name, relative))
    for name, after in plain.after.items():
        moved = plain.before[name], after
        relative = _relative(moved, (noisy.before[name], noisy.after[name]), planned.after.get(name), bits)
        if relative:
            found.append(Difference("state", name, relative))
    for name in planned.after.keys() - plain.after.keys():
        if not np.array_equal(planned.before[name], planned.after[name]):
            found.append(Difference("state", name, float("inf")))
    # A loss or metric says more than a variable.
    return sorted(found, key=lambda each: (each.kind != "result", -each.relative))


def tells_something(plain: StepRun, noisy: StepRun) -> bool:
    """Whether most of what a step changes is changed by more than rounding would explain."""
    moved = [
        (plain.before[name], after, _moved(noisy.before[name], noisy.after[name]))
        for name, after in plain.after.items()
        if _is_float(after) and not np.array_equal(plain.before[name], after)
    ]
    shares = [_norm(again - _moved(before, after)) / _norm(_moved(before, after)) for before, after, again in moved]
    return not shares or float(np.median(shares)) * _TIMES_NOISE < _MOST_ALLOWED


def percent(share: float) -> str:
    """A difference as people read it."""
    if not np.isfinite(share):
        return "more than can be counted"
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else f"{share:.1e}"


def _relative(
    plain: tuple[np.ndarray, np.ndarray],
    noisy: tuple[np.ndarray, np.ndarray],
    planned: Any,
    bits: int,
) -> float | None:
    """The share by which a value differs; `None` where it is the same to rounding."""
    before, after = plain
    if planned is None or planned.shape != after.shape:
        return float("inf")
    if not _is_float(after):
        return None if np.array_equal(after, planned) else 1.0
    if not np.isfinite(after.astype("float64")).all():
        return None if np.array_equal(after, planned, equal_nan=True) else float("inf")
    moved = _norm(_moved(before, after))
    apart = _norm(_moved(after, planned))
    if apart == 0:
        return None
    # What did not move is compared with its own size.
    scale = moved or _norm(after) or 1.0
    noise = _norm(_moved(*noisy) - _moved(before, after)) / scale
    if _TIMES_NOISE * noise > _MOST_ALLOWED:
        return None
    allowed = max(_ROUNDING[min(bits, 8 * after.dtype.itemsize)], _TIMES_NOISE * noise)
    relative = apart / scale
    return relative if relative > allowed or not np.isfinite(relative) else None


def _is_float(array: np.ndarray) -> bool:
    # NumPy has no kind for the types of ml_dtypes.
    return array.dtype.kind in "fc" or array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def _moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    exact = "float32" if before.dtype == after.dtype == np.float32 else "float64"
    moved: np.ndarray = np.subtract(after, before, dtype=exact, casting="unsafe")
    return moved


def _norm(array: np.ndarray) -> float:
    """The length of a vector: in its own type, which is thirty times as fast, where squares of that type will do."""
    found = float(np.linalg.norm(array.ravel()))
    return found if _SMALLEST < found < np.inf else float(np.linalg.norm(array.ravel().astype("float64")))
