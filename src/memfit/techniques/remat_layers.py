"""Models in a model that is not a graph of layers, and layers of which each call is recomputed as a whole."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras
from memfit.techniques.instance import replaced
from memfit.techniques.layer_graph import is_graph
from memfit.techniques.remat_segment import RecomputedSegment
from memfit.techniques.repeatable import refuse_unrepeatable

_FEWEST = 2

_in_segment: ContextVar[bool] = ContextVar("_in_segment", default=False)


def sub_models(model: Any) -> list[Any]:
    """The graphs of layers that a model's training step calls, such as the generator and discriminator of a GAN.

    A model without weights is left out: it augments or preprocesses what needs no gradient.
    """
    found: dict[int, Any] = {}
    for layer in _direct(model):
        if not isinstance(layer, keras().Model):
            continue
        if not is_graph(layer):
            # One with a call of its own does more than its models do.
            found |= {} if has_own_call(layer) else {id(each): each for each in sub_models(layer)}
        elif layer.weights:
            found[id(layer)] = layer
    return list(found.values())


def has_own_call(model: Any) -> bool:
    """Whether a model's class defines `call`; one that only trains others often does not."""
    return type(model).call is not keras().Model.call


def mostly_sub_models(model: Any) -> bool:
    """Whether most layers of a model are in its sub-models."""
    inside = sum(len(list(each._flatten_layers())) for each in sub_models(model))
    return 2 * inside > len(list(model._flatten_layers(include_self=False)))


def chosen_layers(model: Any, value: int | Sequence[str]) -> list[Any]:
    """The layers that a plan's value means.

    Args:
        model: A model that is not a graph of layers.
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
    """Have each call of a layer recomputed in the backward pass."""
    # What Keras calls.
    name = "quantized_call" if getattr(layer, "quantization_mode", None) is not None else "call"
    original = getattr(layer, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not to_recompute(kwargs.get("training", layer._get_call_context().get_value("training"))):
            return original(*args, **kwargs)

        def compute(arguments: Any) -> Any:
            args, kwargs = arguments
            with in_segment(), refuse_unrepeatable(layer.name):
                return original(*args, **kwargs)

        return RecomputedSegment(compute, [layer], model).run((args, kwargs))

    call.recomputes = True  # type: ignore[attr-defined]
    return replaced(layer, name, call)


def to_recompute(training: Any) -> bool:
    """Whether to recompute a call: its gradient may be taken, and nothing around it is recomputed already.

    A train_step may call a model without `training`, and then gets it as for inference, gradients included.
    """
    recording = import_module("tensorflow.python.eager.record").could_possibly_record
    return not _in_segment.get() and (training is True or recording())


@contextmanager
def in_segment() -> Iterator[None]:
    """What is called inside belongs to one segment."""
    token = _in_segment.set(True)
    try:
        yield
    finally:
        _in_segment.reset(token)


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
            f"remat={count} is not possible here: {model.name!r} ({type(model).__name__}) is not a graph of layers and "
            f"has {len(candidates)} layers that can be recomputed, of which {_FEWEST} or more are needed. Pass at most "
            "that many, or the names of layers, or build the model with the Functional API."
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
