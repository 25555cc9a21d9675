"""Two ways to do one step, run from the same state on the same samples; everything is put back afterwards."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfit.compat.step_function import StateVariable, Step, StepFunction, as_traced, stateful_random_operations
from memfit.framework import keras, tensorflow
from memfit.trace.function import build_compiled
from memfit.verification.differences import Difference, StepRun, differences, tells_something
from memfit.verification.samples import as_tensor, few, rows_of, spec_of

# Weights are moved by this share of their size first: what is initialised to zero hides what lies behind it.
_STIRRED = 0.05
_FOR_ZEROS = 0.02
# Two units in the last place of a single-precision number: about what rounding changes.
_ROUNDED = 2.0**-22

# How many random numbers are drawn; odd, so that rows of a matrix do not repeat each other.
_NUMBERS = 2**16 + 1

Way = AbstractContextManager[Step]
"""Yields a step to trace, with the model prepared for it."""


@dataclass(frozen=True)
class Outcome:
    """How two steps compare."""

    differences: tuple[Difference, ...]
    samples: int
    inconclusive: str | None = None
    """Why nothing can be said, where nothing can."""


def compare_steps(model: Any, plain: Way, planned: Way, batch: Any, *, rows: int | None) -> Outcome:
    """Run a plain and a planned step and compare all that they compute and change.

    Args:
        model: A built, compiled Keras model.
        plain: The step to compare with.
        planned: The step in question.
        batch: A batch of the user's data.
        rows: How many samples of it to use; `None` is all of them, for models that fix their batch.

    Raises:
        Exception: Whatever TensorFlow or a layer raises when a step cannot be traced or run.
    """
    samples = keras().tree.map_structure(as_tensor, batch) if rows is None else few(batch, rows)
    spec = spec_of(samples, any_size=rows is not None)
    build_compiled(model, samples)
    functions: list[StepFunction] = []
    for way in (plain, planned):
        with way as step:
            functions.append(StepFunction(model, step, jit=False))
            functions[-1].trace(spec)
    return _compared(model, functions[0], functions[1], samples)


def _compared(model: Any, plain: StepFunction, planned: StepFunction, samples: Any) -> Outcome:
    trained = {id(each._value.handle) for each in model.trainable_variables}
    count = rows_of(samples) or 0
    with _put_back(plain, planned) as values, as_traced():
        start = _Start(values, trained)
        first = start.run(plain, samples, rounded=False)
        noisy = start.run(plain, samples, rounded=True)
        other = start.run(planned, samples, rounded=False)
    if not all(np.isfinite(np.asarray(each, "float64")).all() for each in first.results.values()):
        return Outcome((), count, "the loss of a plain step on these samples is not a number")
    if drawn := stateful_random_operations(plain):
        return Outcome((), count, f"{drawn[0]} draws random numbers that cannot be repeated; use keras.random")
    if not tells_something(first, noisy):
        return Outcome((), count, "two plain steps from nearly the same state differ as much as any two steps")
    return Outcome(tuple(differences(first, noisy, other, bits=_bits(model))), count)


class _Start:
    """The state that every run starts from."""

    def __init__(self, values: list[tuple[StateVariable, np.ndarray]], trained: set[int]) -> None:
        random = np.random.default_rng(0)
        self._names: dict[int, str] = {}
        self._values: dict[int, np.ndarray] = {}
        self._rounded: dict[int, np.ndarray] = {}
        for variable, value in values:
            key = id(variable.handle)
            # Two layers of one name may have variables of one path.
            count = sum(each.partition(" (")[0] == variable.path for each in self._names.values())
            self._names[key] = variable.path if not count else f"{variable.path} ({count + 1})"
            self._values[key] = self._rounded[key] = value
            if key in trained and variable.dtype.is_floating:
                self._values[key] = _stirred(value, random)
                self._rounded[key] = _moved_by(self._values[key], _ROUNDED, random)

    def run(self, function: StepFunction, samples: Any, *, rounded: bool) -> StepRun:
        values = self._rounded if rounded else self._values
        state = function.state
        start = [values[id(each.handle)] for each in state]
        function.write(start)
        logs = function(samples)
        after = function.read()
        names = [self._names[id(each.handle)] for each in state]
        results = {name: np.asarray(value) for name, value in _flat(logs) if np.ndim(value) == 0}
        return StepRun(results, dict(zip(names, start, strict=True)), dict(zip(names, after, strict=True)))


@contextmanager
def _put_back(*functions: StepFunction) -> Iterator[list[tuple[StateVariable, np.ndarray]]]:
    """All state of some steps, which has the same values again afterwards."""
    state = {id(each.handle): each for function in functions for each in function.state}
    values = [(each, each.read()) for each in state.values()]
    try:
        yield values
    finally:
        for variable, value in values:
            variable.write(value)


def _stirred(value: np.ndarray, random: np.random.Generator) -> np.ndarray:
    size = float(np.sqrt(np.mean(np.square(value.astype("float64"))))) if value.size else 0.0
    return np.asarray(value + _noise(value, random) * (_STIRRED * size or _FOR_ZEROS)).astype(value.dtype)


def _moved_by(value: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    return np.asarray(value * (1 + share * _noise(value, random))).astype(value.dtype)


def _noise(value: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Normal numbers, the same again where there are very many, which takes a tenth of the time."""
    return np.resize(random.standard_normal(min(value.size, _NUMBERS)), value.shape)


def _flat(logs: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(logs, dict):
        for name, value in logs.items():
            yield from _flat(value, f"{prefix}{name}")
    elif tensorflow().is_tensor(logs):
        yield prefix, logs.numpy()


def _bits(model: Any) -> int:
    """Bits of the type that layers compute in."""
    types = {each.compute_dtype for each in model._flatten_layers() if each.compute_dtype is not None}
    sizes = [8 * tensorflow().as_dtype(each).size for each in types if tensorflow().as_dtype(each).is_floating]
    return min(sizes, default=32)
