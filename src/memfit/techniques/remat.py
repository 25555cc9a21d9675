"""Rematerialization: the backward pass recomputes chosen segments of the model instead of keeping their insides.

A graph of layers is cut into segments. A model that trains others, such as a GAN, has these cut into segments. In any
other model, each call of a chosen layer is a segment.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.techniques.gradient_order import after_updates
from memfit.techniques.instance import replaced, retraced
from memfit.techniques.layer_graph import (
    LayerCall,
    LayerGraph,
    Values,
    functional_of,
    is_graph,
    joined,
    layer_graph,
    layer_graphs,
)
from memfit.techniques.remat_layers import (
    chosen_layers,
    has_own_call,
    in_segment,
    mostly_sub_models,
    recomputed_calls,
    sub_models,
    to_recompute,
)
from memfit.techniques.remat_placement import RANGE, Segment, by_bytes, by_name, split
from memfit.techniques.remat_segment import RecomputedSegment
from memfit.techniques.repeatable import refuse_unrepeatable
from memfit.techniques.technique import Verdict
from memfit.techniques.tensor_parts import set_mask


def check(model: Any, value: Any) -> Verdict:
    """Refuse models that have nothing to recompute, and layers that are not there."""
    if cuts := _cuts(model, value):
        count, what = sum(len(cut.segments) for cut in cuts), "segment"
    else:
        count, what = len(chosen_layers(model, value)), "layer"
    plural = "s" if count > 1 else ""
    return Verdict(
        "exact", f"{count} {what}{plural} recomputed in the backward pass, with the same dropout masks and statistics"
    )


@contextmanager
def applied(model: Any, value: int | Sequence[str]) -> Iterator[None]:
    """Have the model, its sub-models or its layers recompute when gradients are taken."""
    check(model, value)
    cuts = _cuts(model, value)
    with retraced(model), ExitStack() as stack:
        for cut in cuts:
            stack.enter_context(replaced(cut.model, "call", _recomputing_call(cut, model)))
        for layer in () if cuts else chosen_layers(model, value):
            stack.enter_context(recomputed_calls(layer, model))
        yield


def segments(model: Any, value: Any) -> list[Segment]:
    """The segments that a plan's value means for a graph of layers."""
    graph = layer_graph(model)
    value = _usable(value)
    return by_bytes(graph, value) if isinstance(value, int) else by_name(graph, value)


def names(model: Any) -> list[str]:
    """What a plan can name in a model, in an order that models of one architecture share."""
    if is_graph(model):
        return [call.name for call in layer_graph(model).calls]
    calls = [call.name for graph in layer_graphs(sub_models(model)) for call in graph.calls]
    return [*calls, *(layer.name for layer in model._flatten_layers(include_self=False))]


def renamed(value: int | Sequence[str], before: Sequence[str], after: Sequence[str]) -> int | tuple[str, ...]:
    """A plan's value for another model of the same architecture: Keras numbers the layers of each model anew.

    Args:
        value: A number of segments, or names.
        before: The `names` of the model that the value was made for.
        after: Those of the other model, as many.
    """
    if isinstance(value, int):
        return value
    other: dict[str, str] = {}
    for old, new in zip(before, after, strict=True):
        other |= {old: new, **dict(zip(old.split("/"), new.split("/"), strict=True))}
    return tuple(
        other[name] if name in other else RANGE.join(other.get(end, end) for end in name.split(RANGE, 1))
        for name in value
    )


def _usable(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        raise InputError(f"remat must be a number of segments or names of layers; got {value!r}.")
    return value


@dataclass(frozen=True)
class _Cut:
    """A graph of layers and the segments of it that are recomputed."""

    model: Any
    graph: LayerGraph
    segments: list[Segment]


def _cuts(model: Any, value: Any) -> list[_Cut]:
    """The graph that a model is, or those that it trains; none if single layers are to be chosen."""
    value = _usable(value)
    if is_graph(model):
        return [_Cut(model, layer_graph(model), segments(model, value))]
    if not _means_sub_models(model, value):
        return []
    models = sub_models(model)
    graphs = layer_graphs(models)
    together = joined(graphs)
    # Which of the models runs last, if any does, is not known: every segment is recomputed.
    chosen = by_bytes(together, value, last=True) if isinstance(value, int) else by_name(together, value)
    parts = split(chosen, [len(graph.calls) for graph in graphs])
    return [_Cut(*each) for each in zip(models, graphs, parts, strict=True) if each[2]]


def _means_sub_models(model: Any, value: int | Sequence[str]) -> bool:
    if not has_own_call(model):
        unbuilt = [layer.name for layer in model._flatten_layers() if layer is not model and not layer.built]
        if unbuilt:
            raise InputError(
                f"remat cannot cut what is not built yet in {type(model).__name__}: {', '.join(unbuilt[:8])}. "
                "Begin each Sequential model with a keras.Input, or call it once before."
            )
        return bool(sub_models(model))
    if isinstance(value, int):
        return mostly_sub_models(model)
    return any("/" in name or RANGE in name for name in value)


def _recomputing_call(cut: _Cut, trained: Any) -> Any:
    graph = cut.graph
    parts = _with_the_rest(cut.segments, len(graph.calls))
    functional = functional_of(cut.model)
    original = cut.model.call

    def call(inputs: Any, training: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        if not to_recompute(training):
            return original(inputs, training=training, mask=mask, **kwargs)
        tensors = functional._standardize_inputs(inputs)
        if cut.model is not trained and not trained.jit_compile and not tensorflow().executing_eagerly():
            tensors = after_updates(tensors)
        return _run(trained, functional, graph, parts, tensors, mask, {"training": training, **kwargs})

    call.recomputes = True  # type: ignore[attr-defined]
    return call


def _with_the_rest(recomputed: list[Segment], count: int) -> list[tuple[Segment, bool]]:
    """All calls in segments, with whether each is recomputed."""
    parts: list[tuple[Segment, bool]] = []
    position = 0
    for segment in recomputed:
        if segment.start > position:
            parts.append((Segment(position, segment.start), False))
        parts.append((segment, True))
        position = segment.stop
    if position < count:
        parts.append((Segment(position, count), False))
    return parts


def _run(
    model: Any,
    functional: Any,
    graph: LayerGraph,
    parts: list[tuple[Segment, bool]],
    tensors: list[Any],
    mask: Any,
    context: dict[str, Any],
) -> Any:
    """What `Functional.call` does, segment by segment."""
    tree = keras().tree
    for tensor, each in zip(tensors, tree.flatten(mask) if mask is not None else (), strict=False):
        if each is not None:
            set_mask(tensor, each)
    values: Values = dict(zip(graph.inputs, tensors, strict=True))
    last = graph.last_use()
    for segment, recomputed in parts:
        calls = graph.calls[segment.start : segment.stop]
        if recomputed:
            wanted = sorted(place for call in calls for place in call.outputs if last.get(place, -1) >= segment.stop)
            values |= _recomputed(model, calls, values, wanted, context)
        else:
            for call in calls:
                values |= dict(zip(call.outputs, call.run(values, context), strict=True))
    outputs = tree.pack_sequence_as(functional._outputs_struct, [values[place] for place in graph.outputs])
    return outputs[0] if isinstance(outputs, list | tuple) and len(outputs) == 1 else outputs


def _recomputed(
    model: Any, calls: Sequence[LayerCall], values: Values, wanted: list[int], context: dict[str, Any]
) -> Values:
    """Run calls as one segment; returns what is used behind it."""

    def compute(values: Values) -> Values:
        values = dict(values)
        for call in calls:
            with in_segment(), refuse_unrepeatable(call.name):
                values |= dict(zip(call.outputs, call.run(values, context), strict=True))
        return {place: values[place] for place in wanted}

    made = {place for call in calls for place in call.outputs}
    needed = {place: values[place] for call in calls for place in call.inputs if place not in made}
    layers = {id(call.layer): call.layer for call in calls if isinstance(call.layer, keras().Layer)}
    found: Values = RecomputedSegment(compute, layers.values(), model).run(needed)
    return found
