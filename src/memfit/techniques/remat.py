"""Rematerialization: the backward pass recomputes chosen segments of the model instead of keeping their insides.

A graph of layers is cut into segments. In a model with a `call` of its own, each call of a chosen layer is a segment.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras
from memfit.techniques.instance import has_own_step, replaced, retraced
from memfit.techniques.layer_graph import LayerCall, LayerGraph, Values, functional_of, is_graph, layer_graph
from memfit.techniques.remat_layers import chosen_layers, recomputed_calls
from memfit.techniques.remat_placement import Segment, by_bytes, by_name
from memfit.techniques.remat_segment import RecomputedSegment
from memfit.techniques.repeatable import refuse_unrepeatable
from memfit.techniques.technique import Verdict
from memfit.techniques.tensor_parts import set_mask


def check(model: Any, value: Any) -> Verdict:
    """Refuse models that have nothing to recompute, and layers that are not there."""
    _refuse_models_of_models(model)
    if is_graph(model):
        count, what = len(segments(model, value)), "segment"
    else:
        count, what = len(chosen_layers(model, _usable(value))), "layer"
    plural = "s" if count > 1 else ""
    return Verdict(
        "exact", f"{count} {what}{plural} recomputed in the backward pass, with the same dropout masks and statistics"
    )


@contextmanager
def applied(model: Any, value: int | Sequence[str]) -> Iterator[None]:
    """Have the model, or its layers, recompute when they train."""
    check(model, value)
    with retraced(model), ExitStack() as stack:
        if is_graph(model):
            stack.enter_context(replaced(model, "call", _recomputing_call(model, value)))
        else:
            for layer in chosen_layers(model, value):
                stack.enter_context(recomputed_calls(layer, model))
        yield


def segments(model: Any, value: Any) -> list[Segment]:
    """The segments that a plan's value means for a graph of layers."""
    graph = layer_graph(model)
    value = _usable(value)
    return by_bytes(graph, value) if isinstance(value, int) else by_name(graph, value)


def _usable(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        raise InputError(f"remat must be a number of segments or names of layers; got {value!r}.")
    return value


def _refuse_models_of_models(model: Any) -> None:
    """Refuse a model that only holds others, such as a GAN: what its training step calls is not known from here."""
    if has_own_step(model, "train_step") and type(model).call is keras().Model.call:
        raise InputError(
            f"remat recomputes what a model's call does, and {type(model).__name__} has none: its train_step calls "
            "other models. Train these with keras.RematScope, or plan without remat; mixed_bfloat16 and jit work."
        )


def _recomputing_call(model: Any, value: int | Sequence[str]) -> Any:
    graph = layer_graph(model)
    parts = _with_the_rest(segments(model, value), len(graph.calls))
    functional = functional_of(model)
    original = model.call

    def call(inputs: Any, training: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        if training is not True:
            return original(inputs, training=training, mask=mask, **kwargs)
        return _run(model, functional, graph, parts, inputs, mask, {"training": training, **kwargs})

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
    inputs: Any,
    mask: Any,
    context: dict[str, Any],
) -> Any:
    """What `Functional.call` does, segment by segment."""
    tree = keras().tree
    tensors = functional._standardize_inputs(inputs)
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
            with refuse_unrepeatable(call.name):
                values |= dict(zip(call.outputs, call.run(values, context), strict=True))
        return {place: values[place] for place in wanted}

    made = {place for call in calls for place in call.outputs}
    needed = {place: values[place] for call in calls for place in call.inputs if place not in made}
    layers = {id(call.layer): call.layer for call in calls if isinstance(call.layer, keras().Layer)}
    found: Values = RecomputedSegment(compute, layers.values(), model).run(needed)
    return found
