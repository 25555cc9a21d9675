"""Batch normalisation folded into the layer before it, as it is when a model is used."""

from typing import Any

import numpy as np

from memfit.framework import keras
from memfit.slimming.rebuild import Replacement, call_counts, graph_of, kept, rebuild
from memfit.techniques.layer_graph import LayerCall


def folded(model: Any) -> Any:
    """The model without normalisations that follow a linear convolution or dense layer; its answers are the same."""
    graph = graph_of(model)
    counts = call_counts(graph)
    uses: dict[int, list[LayerCall]] = {}
    for call in graph.calls:
        for place in call.inputs:
            uses.setdefault(place, []).append(call)
    pairs: dict[int, Any] = {}
    dropped: set[int] = set()
    for call in graph.calls:
        after = uses.get(call.outputs[0], [])
        if len(after) != 1 or call.outputs[0] in graph.outputs or not _is_linear(call.layer):
            continue
        norm = after[0].layer
        if _is_plain(norm) and counts[id(call.layer)] == counts[id(norm)] == 1:
            pairs[id(call.layer)] = norm
            dropped.add(id(norm))

    def change(call: LayerCall) -> Replacement | None:
        if id(call.layer) in dropped:
            return Replacement([])
        return _with(call, pairs[id(call.layer)]) if id(call.layer) in pairs else None

    return rebuild(model, change)


def _with(call: LayerCall, norm: Any) -> Replacement:
    kernel, *bias = call.layer.get_weights()
    mean, variance = norm.moving_mean.numpy(), norm.moving_variance.numpy()
    scale = (norm.gamma.numpy() if norm.scale else 1.0) / np.sqrt(variance + norm.epsilon)
    shift = norm.beta.numpy() if norm.center else 0.0
    offset = (bias[0] if bias else 0.0) - mean
    return kept(call, {"use_bias": True}, [kernel * scale, offset * scale + shift])


def _is_linear(layer: Any) -> bool:
    kinds = keras().layers
    exact = (kinds.Conv1D, kinds.Conv2D, kinds.Conv3D, kinds.Dense)
    return type(layer) in exact and layer.activation is keras().activations.linear


def _is_plain(layer: Any) -> bool:
    if not isinstance(layer, keras().layers.BatchNormalization):
        return False
    rank = len(layer.input.shape) if layer._inbound_nodes else 4
    return layer.axis in (-1, rank - 1)
