"""All of a model that training changes, taken out and put back: weights, optimizer, metrics and seeds."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from memfit.compat.optimizers import built_whole, optimizers_of
from memfit.compat.step_function import StepFunction, without_optionals
from memfit.errors import InputError
from memfit.techniques.together import fingerprint


@dataclass(frozen=True)
class Snapshot:
    """A model's state at one moment, as plain arrays; can be pickled."""

    model: str
    """Its fingerprint."""
    variables: tuple[np.ndarray, ...]
    """Weights, statistics and seeds of the model, then those of its optimizers."""
    metrics: tuple[np.ndarray, ...]
    """What the metrics of the epoch have summed up so far."""
    random: tuple[Any, Any]
    """Where Python's and NumPy's own generators are."""
    keras_seed: np.ndarray | None
    """Where Keras's own generator is."""


def take_snapshot(model: Any) -> Snapshot:
    """The state of a built, compiled model."""
    keras_seed = _keras_seed()
    return Snapshot(
        model=fingerprint(model),
        variables=tuple(each.numpy() for each in _variables(model)),
        metrics=tuple(each.numpy() for each in model.metrics_variables),
        random=(random.getstate(), np.random.get_state()),
        keras_seed=None if keras_seed is None else keras_seed.numpy(),
    )


def create_variables(model: Any, spec: Any) -> None:
    """Have a model's train step create what it creates when it is first traced: weights, slots, metrics.

    Keras builds many models no earlier; a model that writes its own step may have several optimizers, and train
    variables that building the model would not create.
    """
    with built_whole(optimizers_of(model)):
        StepFunction(model, model.train_step).trace(without_optionals(spec))


def restore_snapshot(model: Any, snapshot: Snapshot) -> None:
    """Put a state back into a model that has its variables.

    Raises:
        InputError: If it is that of another model or optimizer; nothing has been touched then.
    """
    there = list(_variables(model))
    if snapshot.model != fingerprint(model) or _shapes(there) != _shapes(snapshot.variables):
        raise InputError(f"the snapshot is of another model or optimizer than {model.name!r} has now.")
    metrics = model.metrics_variables
    if _shapes(metrics) == _shapes(snapshot.metrics):
        # Keras makes some of them in the first step; until then they have nothing to sum up.
        there += metrics
    for variable, value in zip(there, (*snapshot.variables, *snapshot.metrics), strict=False):
        variable.assign(value)
    python_state, numpy_state = snapshot.random
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    keras_seed = _keras_seed()
    if keras_seed is not None and snapshot.keras_seed is not None:
        keras_seed.assign(snapshot.keras_seed)


def _variables(model: Any) -> Iterator[Any]:
    metrics = {id(each) for each in model.metrics_variables}
    yield from (each for each in model.variables if id(each) not in metrics)
    for optimizer in optimizers_of(model):
        yield from optimizer.variables


def _shapes(values: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in values]


def _keras_seed() -> Any | None:
    """The state of Keras's global generator, where something has used it."""
    state = import_module("keras.src.backend.common.global_state")
    generator = state.get_global_attribute("global_seed_generator")
    return None if generator is None else generator.state
