"""A few made-up samples with the shapes and types of traced ones, to try a function on."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from memfit.framework import keras, tensorflow

SAMPLES = 4
# Where they are cut: slices of different sizes.
CUT = 1
_OTHER_SIZE = 4


def in_fresh_thread(function: Callable[[], Any]) -> Any:
    """Run eagerly on the CPU, outside of every trace, scope, tape and patch of this thread.

    Raises:
        Exception: What the function raised.
    """
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with tensorflow().device("CPU:0"):
                result.append(function())
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            errors.append(error)

    thread = threading.Thread(target=run, name="memfit-check")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result[0]


def inputs(structure: Any, random: np.random.Generator) -> Any:
    """Inputs or sample weights: floats in (0.1, 1), and zeros and ones, which every embedding has."""
    return _mapped(lambda each: _values(each, random), structure)


def predictions(structure: Any, random: np.random.Generator, *, logits: bool) -> Any:
    """Predictions that are not normalised: normalised ones make losses look separable that are not."""

    def make(each: Any) -> Any:
        if not each.dtype.is_floating:
            return _values(each, random)
        # Half precision would hide differences.
        kind = "float64" if each.dtype == tensorflow().float64 else "float32"
        return (random.normal(0, 2, _shape(each)) if logits else random.uniform(0.05, 0.95, _shape(each))).astype(kind)

    return _mapped(make, structure)


def targets(structure: Any, outputs: Any, random: np.random.Generator, *, whole: bool) -> Any:
    """Targets: class numbers stay in range, and the first two samples, which are cut apart, have the same.

    Args:
        structure: The traced targets.
        outputs: The traced predictions.
        random: Where the numbers come from.
        whole: Whether floats are whole numbers: they may be classes.
    """
    flat_outputs = keras().tree.flatten(outputs)
    paired = len(keras().tree.flatten(structure)) == len(flat_outputs)
    position = iter(flat_outputs)

    def make(each: Any) -> Any:
        output = next(position) if paired else None
        classes = 2
        if output is not None and not each.dtype.is_floating and _is_class_number(each.shape, output.shape):
            classes = max(output.shape[-1] or 2, 2)
        values = _values(each, random, classes)
        if whole:
            values = np.round(values)
        if whole or not each.dtype.is_floating:
            values[1] = values[0]
        return values

    return _mapped(make, structure)


def masks(structure: Any, random: np.random.Generator) -> Any:
    """Masks that hide a different number of entries of each sample, and never all."""

    def make(each: Any) -> Any:
        values = random.random(_shape(each)) < 0.6
        values.reshape(SAMPLES, -1)[:, 0] = True
        return values

    return _mapped(make, structure)


def part(structure: Any, start: int, stop: int) -> Any:
    """Some of the samples."""
    return _mapped(lambda each: each[start:stop], structure)


def _mapped(function: Callable[[Any], Any], structure: Any) -> Any:
    return keras().tree.map_structure(lambda each: None if each is None else function(each), structure)


def _is_class_number(target: Any, output: Any) -> bool:
    return len(target) == len(output) - 1 or (len(target) == len(output) and target[-1] == 1)


def _shape(spec: Any) -> list[int]:
    if not spec.shape.rank or spec.shape[0] is not None:
        raise ValueError(f"{spec} does not have samples along its first dimension")
    return [SAMPLES, *(_OTHER_SIZE if each is None else each for each in spec.shape[1:])]


def _values(spec: Any, random: np.random.Generator, classes: int = 2) -> Any:
    shape = _shape(spec)
    if spec.dtype.is_floating:
        return random.uniform(0.1, 1.0, shape).astype(spec.dtype.as_numpy_dtype)
    if spec.dtype.is_bool or spec.dtype.is_integer:
        return random.integers(0, classes, shape).astype(spec.dtype.as_numpy_dtype)
    raise ValueError(f"no values can be made up for {spec.dtype}")
