"""Another optimizer, which keeps less: the largest part of a big model's memory that the batch does not change."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.techniques.instance import retraced
from memfit.techniques.technique import Verdict
from memfit.trace.tracer import refuse_unready

# What every Keras optimizer can have besides its learning rate, and how it is when it is not used.
_SETTINGS = {
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}

# Where `exclude_from_weight_decay` keeps what it was given.
_EXCLUSIONS = {"_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"}

# What `costs` compares, with the settings that make a difference to the state.
_COMPARED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("sgd", "sgd", {}),
    ("sgd with momentum", "sgd", {"momentum": 0.9}),
    ("lion", "lion", {}),
    ("adafactor", "adafactor", {}),
    ("rmsprop", "rmsprop", {}),
    ("adam", "adam", {}),
    ("adamw", "adamw", {}),
)


@dataclass(frozen=True)
class OptimizerCost:
    """What an optimizer keeps for a model, step counter and learning rate included."""

    name: str
    state_bytes: int
    per_parameter: float
    """Bytes for each trainable parameter."""


def check(model: Any, value: Any) -> Verdict:
    """Refuse what is no optimizer.

    Args:
        model: A built, compiled Keras model.
        value: The name of an optimizer, as `compile` takes it.

    Raises:
        InputError: If Keras does not know it, or the model's own optimizer has no learning rate to carry over.
    """
    refuse_unready(model)
    known = _kinds()
    if not isinstance(value, str) or value.lower() not in known:
        raise InputError(f"optimizer must be one of {', '.join(sorted(known))}; got {value!r}.")
    own = _inner(model.optimizer)
    if isinstance(own, getattr(keras().optimizers, "MultiOptimizer", ())):
        raise InputError(
            f"{model.name!r} is trained by a MultiOptimizer, whose optimizers each have a learning rate. "
            f"Compile it with optimizer={value!r} and the learning rate to take."
        )
    return Verdict(
        "any", f"{value.lower()} instead of {_kind(own)}, from the same learning rate; it is another training"
    )


@contextmanager
def applied(model: Any, value: Any) -> Iterator[None]:
    """Train with a new optimizer of that kind for the duration; the own one and its state wait."""
    check(model, value)
    with model.distribute_strategy.scope():
        other = _instead_of(model.optimizer, value)
    with retraced(model), trained_by(model, other):
        yield


@contextmanager
def trained_by(model: Any, optimizer: Any) -> Iterator[None]:
    """Give a model another optimizer object for the duration."""
    own, settings = model.optimizer, model._compile_config.config
    configured = settings["optimizer"]  # without the loss scale Keras wraps around it in a mixed model
    try:
        model.optimizer = optimizer
        # A checkpoint made inside is loaded by these: with another optimizer in them, Keras drops the saved state.
        settings["optimizer"] = optimizer
        yield
    finally:
        model.optimizer = own
        settings["optimizer"] = configured


def costs(model: Any) -> tuple[OptimizerCost, ...]:
    """What the state of common optimizers would take for this model, in bytes; nothing of that size is allocated.

    Those of another kind are as `applied` would make them. The last two are the model's own optimizer with an
    exponential moving average of the weights, and with gradient accumulation.

    Args:
        model: A built, compiled Keras model.

    Raises:
        InputError: If the model is not ready, or its optimizer cannot be copied to see what it would keep.
    """
    refuse_unready(model)
    own, variables = model.optimizer, model.trainable_variables
    parameters = sum(prod(each.shape) for each in variables)

    def cost(name: str, state: int) -> OptimizerCost:
        return OptimizerCost(name, state, state / parameters if parameters else 0.0)

    found = [
        cost(name, _state_bytes(_instead_of(own, kind, **settings), variables)) for name, kind, settings in _COMPARED
    ]
    state, inner = _own_bytes(own, variables), _inner(own)
    # As `BaseOptimizer.build` does: an average for what gradients update, an accumulator for everything.
    averages = sum(_bytes(each) for each in variables if not getattr(each, "overwrite_with_gradient", False))
    accumulators = sum(map(_bytes, variables))
    return (
        *found,
        cost(f"{_kind(inner)} with EMA", state + (0 if inner.use_ema else averages)),
        cost(
            f"{_kind(inner)} with gradient accumulation",
            state + (0 if inner.gradient_accumulation_steps else accumulators),
        ),
    )


def _kinds() -> dict[str, Any]:
    """The optimizers that a name alone is enough for."""
    room = keras().optimizers
    return {
        name.lower(): kind
        for name, kind in vars(room).items()
        if inspect.isclass(kind) and issubclass(kind, room.Optimizer) and kind is not room.Optimizer
        if not any(
            each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
            for each in list(inspect.signature(kind.__init__).parameters.values())[1:]
        )
    }


def _kind(optimizer: Any) -> str:
    return type(optimizer).__name__.lower()


def _inner(optimizer: Any) -> Any:
    scaled = isinstance(optimizer, keras().optimizers.LossScaleOptimizer)
    return optimizer.inner_optimizer if scaled else optimizer


def _instead_of(own: Any, kind: str, **settings: Any) -> Any:
    """A new optimizer of a kind with what carries over from the own one; a scaled loss stays scaled."""
    inner, new = _inner(own), _kinds()[kind.lower()]
    taken = inspect.signature(new.__init__).parameters
    generous = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    for name, unused in _SETTINGS.items():
        value = getattr(inner, name, unused)
        # What the own one does not use is left to the new one: AdamW cannot be without its weight decay.
        if value != unused and (name in taken or generous):
            settings.setdefault(name, value)
    made = new(learning_rate=_learning_rate(inner), name=kind.lower(), **settings)
    for name in _EXCLUSIONS & vars(inner).keys():
        setattr(made, name, getattr(inner, name))
    if inner is own:
        return made
    scale = float(own.dynamic_scale.numpy()) if own.built else own.initial_scale
    return type(own)(made, initial_scale=scale, dynamic_growth_steps=own.dynamic_growth_steps, name=own.name)


def _learning_rate(own: Any) -> Any:
    rate = own._learning_rate
    schedules = keras().optimizers.schedules
    if isinstance(rate, schedules.LearningRateSchedule):
        done = int(own._iterations.numpy())
        return _continued(rate, done) if done else rate
    return rate if callable(rate) and not hasattr(rate, "numpy") else float(rate.numpy())


def _continued(schedule: Any, done: int) -> Any:
    """The schedule from where the own optimizer has come to: the new one counts its steps from 0."""

    class Continued(keras().optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        def __call__(self, step: Any) -> Any:
            return schedule(step + done)

        def get_config(self) -> dict[str, Any]:
            return dict(schedule.get_config())

    return Continued()


def _own_bytes(own: Any, variables: list[Any]) -> int:
    if own.built:
        return sum(map(_bytes, own.variables))
    try:
        return _state_bytes(type(own).from_config(own.get_config()), variables)
    except Exception as error:  # an optimizer of the user's own raises what it likes
        raise InputError(
            f"what {type(own).__name__} would keep cannot be seen: {type(error).__name__}: {error}. Give it a complete "
            "get_config(), or build it before: model.optimizer.build(model.trainable_variables)."
        ) from error


def _state_bytes(optimizer: Any, variables: list[Any]) -> int:
    """What an optimizer that is not built yet would keep for these variables."""
    recorded: list[Any] = []

    def add_variable(shape: Any, *_: Any, dtype: Any = None, **__: Any) -> Any:
        stand_in = keras().KerasTensor(tuple(shape), dtype or keras().config.floatx(), name="state")
        recorded.append(stand_in)
        return stand_in

    for each in (optimizer, _inner(optimizer), *getattr(optimizer, "optimizers", ())):
        # Everything of a variable's size is made by this method; what is not are single numbers, and those are made.
        each.add_variable = add_variable
        each.assign = lambda _variable, _value: None
    optimizer.build(variables)
    return sum(map(_bytes, recorded)) + sum(map(_bytes, optimizer.variables))


def _bytes(tensor: Any) -> int:
    return int(prod(tensor.shape) * tensorflow().as_dtype(tensor.dtype).size)
