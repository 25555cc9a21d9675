"""Layers of a model with a `call` of its own, each of whose calls is recomputed as a whole."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras
from memfit.techniques.instance import replaced
from memfit.techniques.remat_segment import RecomputedSegment
from memfit.techniques.repeatable import refuse_unrepeatable

_FEWEST = 3  # with fewer segments one layer at most would be recomputed, next to a rest of unknown size


def chosen_layers(model: Any, value: int | Sequence[str]) -> list[Any]:
    """The layers that a plan's value means.

    Args:
        model: A model with a call of its own.
        value: Names of layers, or a number of segments: one less is recomputed, and the last layers are not.

    Raises:
        InputError: If there are no such layers, or one contains another.
    """
    layers = _by_count(model, value) if isinstance(value, int) else _by_name(model, value)
    for layer in layers:
        if any(other is not layer and _contains(other, layer) for other in layers):
            raise InputError(f"remat names {layer.name!r} twice: a layer that contains it is named as well.")
    return layers


def recomputed_calls(layer: Any, model: Any) -> AbstractContextManager[None]:
    """Have each call of a layer be recomputed in the backward pass, when it trains."""
    # What Keras calls.
    name = "quantized_call" if getattr(layer, "quantization_mode", None) is not None else "call"
    original = getattr(layer, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("training", layer._get_call_context().get_value("training")) is not True:
            return original(*args, **kwargs)

        def compute(arguments: Any) -> Any:
            args, kwargs = arguments
            with refuse_unrepeatable(layer.name):
                return original(*args, **kwargs)

        return RecomputedSegment(compute, [layer], model).run((args, kwargs))

    call.recomputes = True  # type: ignore[attr-defined]
    return replaced(layer, name, call)


def _by_name(model: Any, names: Sequence[str]) -> list[Any]:
    layers = [layer for layer in model._flatten_layers(include_self=False) if _recomputable(layer)]
    if unknown := set(names) - {layer.name for layer in layers}:
        known = ", ".join(layer.name for layer in _direct(model)[:8])
        raise InputError(
            f"remat names layers that {model.name!r} does not have: {', '.join(sorted(unknown))}. It has {known}, ..."
        )
    return [layer for layer in layers if layer.name in names]


def _by_count(model: Any, count: int) -> list[Any]:
    candidates = _direct(model)
    while 0 < len(candidates) < count and any(_direct(layer) for layer in candidates):
        # The largest is replaced by the layers in it.
        largest = max(filter(_direct, candidates), key=_size)
        position = next(at for at, layer in enumerate(candidates) if layer is largest)
        candidates[position : position + 1] = _direct(largest)
    if not _FEWEST <= count <= len(candidates):
        raise InputError(
            f"remat={count} is not possible here: {model.name!r} ({type(model).__name__}) has a call() of its own, and "
            f"{len(candidates)} layers in it that can be recomputed. Pass {_FEWEST} to {len(candidates)}, or the names "
            "of layers, or build the model with the Functional API."
        )
    # The backward pass begins with the last layers: they would be computed again right away.
    largest_first = sorted(candidates[:-1], key=_size, reverse=True)
    chosen = {id(layer) for layer in largest_first[: count - 1]}
    return [layer for layer in candidates if id(layer) in chosen]


def _direct(layer: Any) -> list[Any]:
    return [each for each in layer._flatten_layers(include_self=False, recursive=False) if _recomputable(each)]


def _recomputable(layer: Any) -> bool:
    return not isinstance(layer, keras().layers.InputLayer | keras().Metric | keras().losses.Loss)


def _size(layer: Any) -> int:
    """Composite layers hold more activations than others, and wide ones more than narrow ones."""
    return 1000 * len(list(layer._flatten_layers())) + sum(max(each.shape, default=0) for each in layer.weights)


def _contains(outer: Any, inner: Any) -> bool:
    return any(each is inner for each in outer._flatten_layers(include_self=False))
