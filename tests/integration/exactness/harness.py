"""Train a model plainly and with a technique, and say where the two runs differ.

A pair of a case and a technique is "equal" (the runs agree in everything a user can see) or "refused" (memfit raised an
error before it changed anything). Every other outcome raises `SilentDifference`.
"""

import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

import keras
import numpy as np
import pytest

import memfit
from memfit.errors import RecoveryWarning
from memfit.train.session import Recovery, Session

Outcome = Literal["equal", "refused"]

WATCHED = "memfit_run"
"""What `memfit run` does to a script that asks for nothing; it must not differ at all."""

TECHNIQUES: dict[str, dict[str, Any]] = {
    "micro_batch": {"plan": memfit.Plan(micro_batch=3)},
    "remat": {"plan": memfit.Plan(remat=2)},
    "micro_batch+remat": {"plan": memfit.Plan(micro_batch=3, remat=2)},
    "fused_batch_norm": {"plan": memfit.Plan(fused_batch_norm=True)},
    "recover": {"recover": True},
    "recover+micro_batch": {"recover": True, "plan": memfit.Plan(micro_batch=3)},
    "recover+remat": {"recover": True, "plan": memfit.Plan(remat=2)},
}

# Relative to how far a variable moved in the plain run.
TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "mixed_float16": 1e-2, "mixed_bfloat16": 5e-2}
# Relative to the size of the value: rounding of a variable that did not move, such as a moment that is nearly 0.
ROUNDING = {"float64": 1e-10, "float32": 1e-6, "mixed_float16": 1e-3, "mixed_bfloat16": 8e-3}
# What a plain run after a refusal may differ: the order in which two threads add.
REPEATED = {"float64": 1e-12, "float32": 1e-6, "mixed_float16": 1e-3, "mixed_bfloat16": 8e-3}


class SilentDifference(AssertionError):  # noqa: N818 - the name of what went wrong
    """A technique changed the training and did not say so."""


@dataclass(frozen=True, eq=False)
class Case:
    """A model with its data, and the techniques it is trained with.

    Attributes:
        name: Unique name within the matrix.
        group: What the case varies: layers, losses, optimizers, ...
        build: Returns a compiled model and the arguments of `fit`, and optionally a function that returns further
            values to compare after training.
        techniques: Names from `TECHNIQUES`.
        expected: The outcome of a technique where it is certain; others may be equal or refused.
        quick: Techniques whose pair runs in every test run, not only in the slow one.
        dtype: The Keras dtype policy.
    """

    name: str
    group: str
    build: Callable[[], tuple[Any, ...]]
    techniques: tuple[str, ...]
    expected: Mapping[str, Outcome] = field(default_factory=dict)
    quick: tuple[str, ...] = ()
    dtype: str = "float64"


@dataclass(frozen=True)
class Run:
    """Everything of a run that a user can see."""

    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]
    logs: list[tuple[str, int, dict[str, Any]]]
    history: dict[str, list[float]]
    extra: dict[str, Any]


class Recording(keras.callbacks.Callback):
    """Collects the logs of every batch and epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[tuple[str, int, dict[str, Any]]] = []

    def _record(self, event: str, index: int, logs: Any) -> None:
        self.logs.append((event, index, {name: np.array(value) for name, value in (logs or {}).items()}))

    def on_train_batch_begin(self, batch, logs=None):
        self._record("train batch begin", batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self._record("train batch", batch, logs)

    def on_test_batch_end(self, batch, logs=None):
        self._record("validation batch", batch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self._record("epoch", epoch, {name: value for name, value in (logs or {}).items() if name != "lr"})

    def on_train_end(self, logs=None):
        self._record("end", 0, logs)


def outcome(case: Case, technique: str) -> Outcome:
    """Whether a pair is equal or refused.

    Raises:
        SilentDifference: If it is neither, or not the expected one.
    """
    plain = plain_run(case)
    expected = case.expected.get(technique)
    with prepared(case):
        model, arguments, extra = built(case)
        before, others = state_of(model), process_state()
        untouched = _attributes(model)
        try:
            run = trained(model, arguments, extra, _fit_with(model, technique))
        except memfit.MemfitError as error:
            if not str(error).strip():
                raise SilentDifference(f"{case.name} x {technique}: refused without a reason") from error
            _compare_refused(case, technique, before, others, untouched, model, error)
            again = trained(model, arguments, extra, model.fit)
            _raise_if_different(
                f"{case.name} x {technique}: plain training after the refusal",
                differences(plain, again, REPEATED[case.dtype], REPEATED[case.dtype]),
            )
            if expected == "equal":
                raise SilentDifference(f"{case.name} x {technique}: must work, but was refused: {error}") from error
            return "refused"
    tolerance, rounding = (TOLERANCE, ROUNDING) if technique != WATCHED else (REPEATED, REPEATED)
    _raise_if_different(
        f"{case.name} x {technique}", differences(plain, run, tolerance[case.dtype], rounding[case.dtype])
    )
    if left := _left_behind(model, untouched):
        raise SilentDifference(f"{case.name} x {technique}: left on the model: {', '.join(left)}")
    if expected == "refused":
        raise SilentDifference(f"{case.name} x {technique}: must be refused, but ran and was equal")
    return "equal"


def _fit_with(model: Any, technique: str) -> Callable[..., Any]:
    if technique != WATCHED:
        return lambda **settings: memfit.fit(model, **settings, **TECHNIQUES[technique])

    def watched(**settings: Any) -> Any:
        with Session(model, memfit.Plan(), recovery=Recovery(pytest.fail, every_step=False)):
            return model.fit(**settings)

    return watched


@lru_cache(maxsize=1)
def plain_run(case: Case) -> Run:
    """The run without memfit; pairs of the same case share it."""
    with prepared(case):
        model, arguments, extra = built(case)
        return trained(model, arguments, extra, model.fit)


@contextmanager
def prepared(case: Case) -> Iterator[None]:
    """The same start for every run; Keras and the random states are afterwards as they were."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy().name
    python, numpy = random.getstate(), np.random.get_state()
    keras.utils.clear_session(free_memory=False)
    keras.config.set_floatx("float32" if case.dtype.startswith("mixed") else case.dtype)
    keras.config.set_dtype_policy(case.dtype)
    keras.utils.set_random_seed(1)
    try:
        with warnings.catch_warnings():
            _ignore_framework_warnings()
            yield
    finally:
        keras.utils.clear_session(free_memory=False)
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)
        random.setstate(python)
        np.random.set_state(numpy)


def _ignore_framework_warnings() -> None:
    """Cases use Keras in ways it warns about, such as data that ends early; that is not what is tested."""
    for module in ("keras", "tensorflow", "numpy"):
        warnings.filterwarnings("ignore", module=rf"{module}\b.*")
    # That a model trains without recovery is said, and is no difference.
    warnings.filterwarnings("ignore", "'.*' trains without recovery", RecoveryWarning)


def built(case: Case) -> tuple[Any, dict[str, Any], Callable[[], dict[str, Any]]]:
    """The model, the arguments of `fit` and what else to compare."""
    model, arguments, *rest = case.build()
    return model, {"epochs": 2, "verbose": 0, **arguments}, rest[0] if rest else dict


def trained(model: Any, arguments: dict[str, Any], extra: Any, fit: Callable[..., Any]) -> Run:
    """Train and collect what can be seen."""
    before = state_of(model)
    recording = Recording()
    callbacks = [*arguments.get("callbacks", ()), recording]
    history = fit(**{**arguments, "callbacks": callbacks})
    return Run(before, state_of(model), recording.logs, history.history, {**extra(), **process_state()})


def state_of(model: Any) -> dict[str, np.ndarray]:
    """All variables of a model, its optimizers and its metrics by a name that is the same in every build."""
    optimizers = [
        model.optimizer,
        *(each for each in vars(model).values() if isinstance(each, keras.optimizers.Optimizer)),
    ]
    unique = {id(each): each for each in optimizers if each is not None}
    groups = {
        "variable": list(model.variables),
        "metric": list(model.metrics_variables) if model.compiled else [],
        **{f"optimizer {index}": list(each.variables) for index, each in enumerate(unique.values())},
    }
    found = {}
    for group, variables in groups.items():
        for index, variable in enumerate(variables):
            # The path of an optimizer's variable depends on where Keras builds it.
            name = variable.path.split("/")[-1] if group.startswith("optimizer") else variable.path
            found[f"{group} {index} {name}"] = np.array(variable)
    return found


def process_state() -> dict[str, Any]:
    """The random states of the process."""
    generator = import_module("keras.src.backend.common.global_state").get_global_attribute("global_seed_generator")
    return {
        "global seed": None if generator is None else np.array(generator.state),
        "numpy.random": np.random.get_state()[1],
        "random": np.array(random.getstate()[1]),
    }


def _attributes(model: Any) -> dict[str, set[str]]:
    """What hides the methods of a class, by layer."""
    return {
        layer.name: {name for name in vars(layer) if callable(getattr(type(layer), name, None))}
        for layer in model._flatten_layers()
    }


def _left_behind(model: Any, before: dict[str, set[str]]) -> list[str]:
    """What was put in the place of methods and is still there."""
    now = _attributes(model)
    return [f"{layer}.{name}" for layer in before.keys() & now.keys() for name in before[layer] ^ now[layer]]


def _compare_refused(case, technique, before, others, untouched, model, error) -> None:
    """A refusal changes nothing."""
    now = state_of(model)
    changed = [name for name in before if name not in now or not np.array_equal(before[name], now[name])]
    # Variables that Keras creates before the first step are no change: the plain run behind this one shows it. Their
    # initial values take numbers from the random states.
    if len(now) == len(before):
        changed += [name for name, value in process_state().items() if not np.array_equal(value, others[name])]
    changed += _left_behind(model, untouched)
    if changed:
        raise SilentDifference(
            f"{case.name} x {technique}: the refusal changed {len(changed)} values, such as {changed[0]}; "
            f"refused with: {error}"
        ) from error


def differences(plain: Run, run: Run, tolerance: float, rounding: float) -> list[tuple[float, str]]:
    """Where two runs differ, the largest difference first; infinite for what is missing."""
    found: list[tuple[float, str]] = []
    if plain.after.keys() != run.after.keys():
        found.append((np.inf, f"variables: {sorted(plain.after.keys() ^ run.after.keys())[:3]}"))
    for name in plain.after.keys() & run.after.keys():
        start, end, value = plain.before.get(name), plain.after[name], run.after[name]
        moved = np.abs(_float(end) - (0 if start is None or start.shape != end.shape else _float(start)))
        found += _different(name, end, value, float(np.max(moved, initial=0)), tolerance, rounding)
    found += _history_differences("history", plain.history, run.history, tolerance, rounding)
    if [each[:2] for each in plain.logs] != [each[:2] for each in run.logs]:
        found.append((np.inf, f"callbacks: {len(plain.logs)} events, now {len(run.logs)}"))
    for (event, index, expected), (_, _, logs) in zip(plain.logs, run.logs, strict=False):
        found += _history_differences(f"logs of {event} {index}", expected, logs, tolerance, rounding)
    for name, expected in plain.extra.items():
        found += _different(name, np.asarray(expected), np.asarray(run.extra.get(name)), None, tolerance, rounding)
    return sorted(found, reverse=True)


def _history_differences(what: str, plain: Any, run: Any, tolerance: float, rounding: float) -> list[tuple[float, str]]:
    if [*plain] != [*run]:
        return [(np.inf, f"{what}: has {[*run]}, expected {[*plain]}")]
    return [
        difference
        for name in plain
        for difference in _different(
            f"{what} {name}", np.asarray(plain[name]), np.asarray(run[name]), None, tolerance, rounding
        )
    ]


def _different(
    name: str, expected: np.ndarray, value: np.ndarray, moved: float | None, tolerance: float, rounding: float
) -> list[tuple[float, str]]:
    if expected.shape != value.shape or expected.dtype != value.dtype:
        return [(np.inf, f"{name}: {value.dtype}{value.shape} instead of {expected.dtype}{expected.shape}")]
    if not np.issubdtype(_float(expected).dtype, np.floating) or np.issubdtype(expected.dtype, np.integer):
        return (
            [] if np.array_equal(expected, value) else [(np.inf, f"{name}: {value!s:.60} instead of {expected!s:.60}")]
        )
    expected, value = _float(expected), _float(value)
    if not np.array_equal(np.isfinite(expected), np.isfinite(value)):
        return [(np.inf, f"{name}: other values are not finite")]
    size = float(np.max(np.abs(expected), initial=0, where=np.isfinite(expected)))
    difference = float(np.max(np.abs(expected - value), initial=0, where=np.isfinite(expected)))
    moved = size if moved is None or not np.isfinite(moved) else moved
    if difference <= tolerance * moved + rounding * max(size, 1e-6):
        return []
    return [(difference / max(moved, 1e-300), f"{name}: differs by {difference:.2g}, moved {moved:.2g}")]


def _float(value: Any) -> np.ndarray:
    value = np.asarray(value)
    return value.astype("float64") if value.dtype.kind not in "OUSV" or value.dtype.name == "bfloat16" else value


def pairs(*groups: list[Case]) -> list[Any]:
    """The parameters of a test: every pair of the groups; all but the representative ones are slow."""
    return [
        pytest.param(case, technique, id=f"{case.name}-{technique}", marks=() if quick else pytest.mark.slow)
        for group in groups
        for case in group
        for technique in (*case.techniques, WATCHED)
        for quick in [technique in case.quick]
    ]


def _raise_if_different(what: str, found: list[tuple[float, str]]) -> None:
    if found:
        raise SilentDifference(f"{what}: {len(found)} differences; the largest: {found[0][1]}")
