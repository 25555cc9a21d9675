"""What takes part in a step while it is traced: its layers, its optimizers, and what gradients are taken of."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from memfit.framework import keras, tensorflow
from memfit.trace.step import VariableKind

_OPTIMIZER_MARK = re.compile(r"^(.*)/iteration$")


@dataclass
class Participants:
    """Collected during a trace, each once."""

    layers: dict[int, Any] = field(default_factory=dict)
    optimizers: dict[int, Any] = field(default_factory=dict)
    differentiated: dict[int, Any] = field(default_factory=dict)
    """The variables gradients are taken of, by their handles."""

    def kinds(self, concrete: Any) -> dict[str, tuple[str, VariableKind]]:
        """Name and kind of the variable behind each handle the function captures, in the order of their creation."""
        captured = {id(external): internal.op.name for external, internal in concrete.graph.captures}
        variables = sorted((each for each in concrete.variables if id(each.handle) in captured), key=_created)
        slots = {id(_handle(each)) for optimizer in self.optimizers.values() for each in optimizer.variables}
        names = {id(each.handle): each.name.partition(":")[0] for each in variables}
        # An inner tf.function that was traced before hides its optimizer; the name of its counter does not.
        scopes = tuple(f"{mark.group(1)}/" for name in names.values() if (mark := _OPTIMIZER_MARK.match(name)))
        weights = {id(_handle(each)) for layer in self.layers.values() for each in layer.variables}
        shapes = {tuple(each.shape) for each in self.differentiated.values()}

        def kind(variable: Any) -> VariableKind:
            handle = id(variable.handle)
            name = names[handle]
            if handle in slots or name.startswith(scopes):
                return "optimizer"
            if handle in self.differentiated:
                return "parameter"
            if "seed_generator" in name:
                return "seed"
            if handle in weights:
                return "parameter" if variable.trainable else "state"
            # Slots made by hand look like the weights they belong to, but nothing is differentiated by them.
            if tuple(variable.shape) in shapes and variable.shape.rank:
                return "optimizer"
            return "parameter" if variable.trainable and variable.shape.rank else "other"

        return {captured[id(each.handle)]: (names[id(each.handle)], kind(each)) for each in variables}


@contextmanager
def participants() -> Iterator[Participants]:
    """Collect what takes part in the steps that are traced in the meantime."""
    found = Participants()

    def add_optimizer(optimizer: Any, *_: Any, **__: Any) -> None:
        found.optimizers[id(optimizer)] = optimizer

    def add_layer(layer: Any, *_: Any, **__: Any) -> None:
        found.layers[id(layer)] = layer

    def add_differentiated(_: Any, target: Any, sources: Any, *__: Any, **___: Any) -> None:
        del target
        for each in tensorflow().nest.flatten(sources):
            if (handle := _handle(each)) is not None:
                found.differentiated[id(handle)] = each

    optimizer, tape = keras().optimizers.Optimizer, tensorflow().GradientTape
    places: list[tuple[Any, str, Callable[..., None]]] = [
        (keras().layers.Layer, "__call__", add_layer),
        (optimizer, "apply", add_optimizer),
        (optimizer, "apply_gradients", add_optimizer),
        (tape, "gradient", add_differentiated),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for (owner, name, add), (_, _, original) in zip(places, originals, strict=True):
        setattr(owner, name, _noting(original, add))
    try:
        yield found
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _noting(original: Callable[..., Any], add: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noting(*arguments: Any, **options: Any) -> Any:
        with suppress(TypeError):  # called in a way that the original will refuse
            add(*arguments, **options)
        return original(*arguments, **options)

    return noting


def _handle(variable: Any) -> Any | None:
    value = variable.value if isinstance(variable, keras().Variable) else variable
    return getattr(value, "handle", None)


def _created(variable: Any) -> int:
    """TensorFlow numbers its variables."""
    number = str(variable._unique_id).rpartition("_")[2]
    return int(number) if number.isdigit() else 0
