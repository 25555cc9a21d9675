"""A Functional model built again, with some of its layers changed. The model itself stays as it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras
from memfit.techniques.instance import has_own_step
from memfit.techniques.layer_graph import LayerCall, LayerGraph, functional_of, layer_graph


@dataclass(frozen=True)
class Replacement:
    """What stands in a layer's place: one layer, several in a row, or none, and the weights they start with."""

    layers: Sequence[Any]
    weights: Sequence[Sequence[Any]] = field(default=())
    """Of each layer; what is empty is left as the layer was initialised."""


Change = Callable[[LayerCall], Replacement | None]
"""From a call of the old model to what replaces its layer; `None` keeps it."""


def graph_of(model: Any) -> LayerGraph:
    """The layers of a model that can be built again.

    Raises:
        InputError: If it is not Functional or Sequential, not built, or has a training step of its own.
    """
    refuse_unbuilt(model)
    try:
        graph = layer_graph(model)
    except InputError as error:
        raise InputError(
            f"{model.name!r} ({type(model).__name__}) is not Functional: its layers are called in a call() of its own, "
            "so they cannot be replaced. Build it with the Functional API or keras.Sequential."
        ) from error
    if has_own_step(model, "train_step"):
        raise InputError(
            f"{model.name!r} ({type(model).__name__}) has a train_step of its own, which a rebuilt model would not "
            "have. Rebuild the keras.Model inside of it, and wrap the result again."
        )
    return graph


def refuse_unbuilt(model: Any) -> None:
    """Refuse what is no Keras model, or one without weights yet."""
    if not isinstance(model, keras().Model):
        raise InputError(f"expected a Keras model, got {type(model).__name__}.")
    if not model.built:
        raise InputError(
            f"{model.name!r} is not built. Give it an Input layer, or call model.build((None, ...)) first."
        )


def refuse_shared(calls: Sequence[LayerCall], graph: LayerGraph) -> None:
    """Refuse to change layers that are called more than once."""
    counts = call_counts(graph)
    shared = sorted({call.name for call in calls if counts[id(call.layer)] > 1})
    if shared:
        raise InputError(
            f"{', '.join(shared)}: called more than once, so what replaces it would have to suit every call. "
            "Leave it out, or give each call a layer of its own."
        )


def call_counts(graph: LayerGraph) -> dict[int, int]:
    """How often each layer is called, by `id`."""
    counts: dict[int, int] = {}
    for call in graph.calls:
        counts[id(call.layer)] = counts.get(id(call.layer), 0) + 1
    return counts


def rebuild(model: Any, change: Change, name: str | None = None, *, compiled: bool = True) -> Any:
    """Build a model again, layer by layer, nested models taken apart.

    Layers that are kept carry their weights over. If the model was compiled, so is the new one, with a fresh optimizer.

    Args:
        model: A built Functional or Sequential model.
        change: Which layers are replaced, and by what.
        name: The new model's name; by default the old one.
        compiled: Whether to compile it, if the model was.
    """
    graph, functional = graph_of(model), functional_of(model)
    values: dict[int, Any] = {}
    for place, tensor in zip(graph.inputs, functional.inputs, strict=True):
        values[place] = keras().Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor._keras_history[0].name)
    made: dict[int, Replacement] = {}
    started = list(values.values())
    for call in graph.calls:
        if call.layer is None:
            found = [values[place] for place in call.inputs]
        else:
            replacement = made.setdefault(id(call.layer), change(call) or kept(call))
            found = _called(call, replacement.layers, values)
        values |= dict(zip(call.outputs, found, strict=True))
    pack = keras().tree.pack_sequence_as
    rebuilt = keras().Model(
        pack(functional._inputs_struct, started),
        pack(functional._outputs_struct, [values[place] for place in graph.outputs]),
        name=name or model.name,
    )
    for replacement in made.values():
        for layer, weights in zip(replacement.layers, replacement.weights, strict=False):
            if weights:
                layer.set_weights(weights)
    if compiled and model.compiled:
        _compile_like(rebuilt, model)
    return rebuilt


def flat_name(call: LayerCall) -> str:
    """A layer's name in the new model, where nothing is nested."""
    return call.name.replace("/", "_")


def kept(
    call: LayerCall, changes: Mapping[str, Any] | None = None, weights: Sequence[Any] | None = None
) -> Replacement:
    """A copy of a layer, with some of its settings and its weights changed."""
    config = {**call.layer.get_config(), "name": flat_name(call), **(changes or {})}
    copy = type(call.layer).from_config(config)
    if weights is None:
        weights = call.layer.get_weights() if hasattr(call.layer, "get_weights") else ()
    return Replacement([copy], [weights])


def _called(call: LayerCall, layers: Sequence[Any], values: Mapping[int, Any]) -> list[Any]:
    """Call the first layer with the arguments of the old call, the others with what came out."""
    by_old = iter([values[place] for place in call.inputs])
    tensor = keras().KerasTensor
    args, kwargs = keras().tree.map_structure(
        lambda each: next(by_old) if isinstance(each, tensor) else each,
        (call.node.arguments.args, call.node.arguments.kwargs),
    )
    if not layers:
        return [values[place] for place in call.inputs]
    found = layers[0](*args, **kwargs)
    for layer in layers[1:]:
        found = layer(found)
    flat: list[Any] = keras().tree.flatten(found)
    return flat


def _compile_like(rebuilt: Any, model: Any) -> None:
    """Compile with what the model was compiled with; optimizer and metrics have state, so they are copied."""
    given = dict(model._compile_config.config)
    for key in ("optimizer", "metrics", "weighted_metrics"):
        given[key] = keras().tree.map_structure(_fresh, given.get(key))
    rebuilt.compile(**given)


def _fresh(given: Any) -> Any:
    stateful = (keras().optimizers.Optimizer, keras().metrics.Metric)
    return type(given).from_config(given.get_config()) if isinstance(given, stateful) else given
