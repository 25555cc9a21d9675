"""Fewer filters in every layer of a model, through the graph: what one layer loses, the next one no longer reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memfit.errors import InputError
from memfit.framework import keras
from memfit.slimming.channels import Channels, Numbers, makes_channels
from memfit.slimming.rebuild import Replacement, graph_of, kept, rebuild
from memfit.techniques.layer_graph import LayerCall, LayerGraph, functional_of


def narrowed(model: Any, share: float | Mapping[str, float], name: str | None = None) -> Any:
    """A model with a share of its filters, those with the largest norm; inputs and outputs stay as they are.

    Args:
        model: A built Functional or Sequential model.
        share: How many of each layer's filters are kept, 0 to 1; or by layer name, and all of every other layer.
        name: The new model's name.
    """
    graph = graph_of(model)
    channels = Channels(graph, _shapes(model, graph))
    removed = _removed(channels, share)

    def change(call: LayerCall) -> Replacement | None:
        if call.layer is None or not len(removed):
            return None
        taken = channels.kept(call.inputs[0], removed)
        made = channels.kept(call.outputs[0], removed)
        whole = len(taken) == len(channels.of[call.inputs[0]]) and len(made) == len(channels.of[call.outputs[0]])
        return None if whole else _narrower(call, taken, made)

    return rebuild(model, change, name)


def refuse_share(share: Any, argument: str) -> None:
    """Say what a share is."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise InputError(
            f"{argument}={share!r} must be a number above 0 and up to 1, such as 0.5 for half the filters."
        )


def _removed(channels: Channels, share: float | Mapping[str, float]) -> set[int]:
    """The filters with the smallest norms; every layer keeps one at least."""
    removed: set[int] = set()
    groups = channels.groups()
    if isinstance(share, Mapping):
        known = {name for group in groups for name in group.layers}
        if unknown := sorted(set(share) - known):
            raise InputError(
                f"{', '.join(unknown)} has no filters that could be removed. "
                f"Layers that have: {', '.join(sorted(known))}."
            )
    for group in groups:
        asked = min(share.get(each, 1.0) for each in group.layers) if isinstance(share, Mapping) else share
        count = max(1, round(len(group.numbers) * asked))
        weakest = np.argsort(group.scores, kind="stable")[: len(group.numbers) - count]
        removed |= {int(number) for number in group.numbers[weakest]}
    return removed


def _narrower(call: LayerCall, taken: Numbers, made: Numbers) -> Replacement:
    """A layer that reads and makes these channels only."""
    layer, kinds = call.layer, keras().layers
    weights = layer.get_weights() if hasattr(layer, "get_weights") else []
    if makes_channels(layer):
        size = "units" if isinstance(layer, kinds.Dense) else "filters"
        return kept(call, {size: len(made)}, _sliced(layer, weights, taken, made))
    if isinstance(layer, (kinds.DepthwiseConv1D, kinds.DepthwiseConv2D)):
        return kept(call, None, [weights[0][..., taken, :], *(bias[made] for bias in weights[1:])])
    if isinstance(layer, kinds.Reshape):
        return kept(call, {"target_shape": (*layer.target_shape[:-1], len(made))})
    return kept(call, None, [each[..., taken] for each in weights])


def _sliced(layer: Any, weights: Sequence[Any], taken: Numbers, made: Numbers) -> list[Any]:
    names = [variable.name for variable in layer.weights]
    found = []
    for name, value in zip(names, weights, strict=True):
        if name == "bias":
            found.append(value[made])
        elif name == "depthwise_kernel":
            found.append(value[..., taken, :])
        elif name == "pointwise_kernel":
            multiplier = layer.depth_multiplier
            rows = (taken[:, None] * multiplier + np.arange(multiplier)).ravel()
            found.append(value[..., rows, :][..., made])
        elif type(layer).__name__.endswith("Transpose"):
            found.append(value[..., made, :][..., taken])
        else:
            found.append(value[..., taken, :][..., made])
    return found


def _shapes(model: Any, graph: LayerGraph) -> dict[int, tuple[int | None, ...]]:
    """The shape at every place."""
    shapes = {
        place: tuple(tensor.shape) for place, tensor in zip(graph.inputs, functional_of(model).inputs, strict=True)
    }
    for call in graph.calls:
        if call.layer is None:
            shapes |= {made: shapes[taken] for taken, made in zip(call.inputs, call.outputs, strict=True)}
        else:
            shapes |= {made: tuple(tensor.shape) for made, tensor in zip(call.outputs, call.node.outputs, strict=True)}
    return shapes
