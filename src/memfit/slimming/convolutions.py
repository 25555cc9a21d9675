"""Cheaper convolutions in the place of others: separable ones, and smaller kernels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from memfit.errors import InputError
from memfit.framework import keras
from memfit.slimming.rebuild import Replacement, flat_name
from memfit.techniques.layer_graph import LayerCall, LayerGraph

Chosen = bool | int | str | Sequence[str]
"""Which convolutions: all, those with kernels of at least a size, or by name."""

# Settings a separable layer has under the same name, and those that go to both of its halves.
_SAME = (
    *("name", "trainable", "dtype", "filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate"),
    *("activation", "use_bias", "bias_initializer", "bias_regularizer", "activity_regularizer", "bias_constraint"),
)
_HALVES = ("initializer", "regularizer")


def chosen_convolutions(graph: LayerGraph, chosen: Chosen, argument: str) -> list[LayerCall]:
    """The convolutions that are meant; the first layer and 1x1 kernels only where they are named.

    Raises:
        InputError: If a name is no convolution of the model, or the choice is none.
    """
    convolutions = [call for call in graph.calls if type(call.layer) in _kinds()]
    if isinstance(chosen, str) or (isinstance(chosen, Sequence) and all(isinstance(each, str) for each in chosen)):
        names = [chosen] if isinstance(chosen, str) else list(chosen)
        by_name = {call.name: call for call in convolutions}
        if missing := [name for name in names if name not in by_name]:
            known = ", ".join(list(by_name)[:8]) or "none"
            raise InputError(
                f"{argument}: {', '.join(missing)} is no Conv1D or Conv2D of the model. Those there are: {known}."
            )
        return [by_name[name] for name in names]
    if not isinstance(chosen, int) or chosen < 0:
        raise InputError(
            f"{argument}={chosen!r} must be True, a kernel size such as 5 (and larger), or names of convolutions."
        )
    smallest = 2 if chosen is True else max(2, chosen)
    return [
        call
        for call in convolutions
        if not _is_first(call, graph) and max(call.layer.kernel_size) >= smallest and chosen
    ]


def refuse_irreplaceable(calls: Sequence[LayerCall], argument: str) -> None:
    """Refuse, by name, convolutions that have no cheaper counterpart."""
    _refuse([(call, _irreplaceable(call.layer)) for call in calls], argument)


def refuse_inseparable(calls: Sequence[LayerCall]) -> None:
    """Refuse, by name, what only a full convolution can do."""
    _refuse([(call, _inseparable(call.layer)) for call in calls], "separable")


def _refuse(calls: Sequence[tuple[LayerCall, str | None]], argument: str) -> None:
    """Refuse those that have a reason."""
    reasons = [f"{call.name} ({reason})" for call, reason in calls if reason]
    if reasons:
        raise InputError(
            f"{argument}: cannot be replaced: {'; '.join(reasons)}. Name those that can: {argument}=['conv1', ...]."
        )


def separable_convolution(call: LayerCall) -> Replacement:
    """A depthwise and a pointwise convolution that come as near to the old kernel as two of them can."""
    layer = call.layer
    config = layer.get_config()
    settings = {key: config[key] for key in _SAME if key in config} | {"name": flat_name(call)}
    for half in ("depthwise", "pointwise"):
        settings |= {f"{half}_{each}": config[f"kernel_{each}"] for each in _HALVES}
    made = _kinds()[type(layer)].from_config(settings)
    kernel, *bias = layer.get_weights()
    return Replacement([made], [[*factorised(kernel), *bias]])


def factorised(kernel: Any) -> tuple[Any, Any]:
    """The best depthwise and pointwise kernels: for each input channel the first singular pair of its filters.

    Args:
        kernel: Of shape (*size, inputs, outputs).

    Returns:
        Kernels of shape (*size, inputs, 1) and (1, ..., inputs, outputs).
    """
    *size, inputs, outputs = kernel.shape
    by_channel = np.moveaxis(kernel.reshape(-1, inputs, outputs), 1, 0).astype("float64")
    left, values, right = np.linalg.svd(by_channel, full_matrices=False)
    root = np.sqrt(values[:, :1])
    depthwise = (left[:, :, 0] * root).T.reshape(*size, inputs, 1)
    pointwise = (right[:, 0, :] * root).reshape(*(1,) * len(size), inputs, outputs)
    return depthwise.astype(kernel.dtype), pointwise.astype(kernel.dtype)


def smaller_kernel(call: LayerCall, size: int) -> Replacement:
    """The same convolution with the middle of its kernel, at the same places of the picture."""
    layer = call.layer
    new = tuple(min(size, old) for old in layer.kernel_size)
    kernel, *bias = layer.get_weights()
    margins = [(old - each) // 2 for old, each in zip(layer.kernel_size, new, strict=True)]
    middle = kernel[tuple(slice(margin, margin + each) for margin, each in zip(margins, new, strict=True))]
    config = {**layer.get_config(), "kernel_size": new, "name": flat_name(call)}
    made = type(layer).from_config(config)
    if layer.padding != "valid":
        return Replacement([made], [[middle, *bias]])
    # Without padding a smaller kernel would see the border too, and make the picture larger.
    border = [margin * rate for margin, rate in zip(margins, layer.dilation_rate, strict=True)]
    cropping = keras().layers.Cropping1D if len(border) == 1 else keras().layers.Cropping2D
    crop = cropping(border[0] if len(border) == 1 else tuple(border), name=f"{config['name']}_border")
    return Replacement([crop, made], [[], [middle, *bias]])


def larger_than(size: Any, graph: LayerGraph) -> list[LayerCall]:
    """The convolutions whose kernels can be cut down to a size.

    Raises:
        InputError: If the size is none, or a larger kernel has no middle of that size.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"kernel_size={size!r} must be a whole number of at least 1, such as 3.")
    found = [call for call in chosen_convolutions(graph, True, "kernel_size") if max(call.layer.kernel_size) > size]
    if odd := [call for call in found if any((old - size) % 2 for old in call.layer.kernel_size if old > size)]:
        named = ", ".join(f"{call.name} ({'x'.join(map(str, call.layer.kernel_size))})" for call in odd)
        raise InputError(f"kernel_size={size} is not in the middle of: {named}. Choose a size that differs by 2 or 4.")
    return found


def _irreplaceable(layer: Any) -> str | None:
    if layer.groups > 1:
        return f"grouped, groups={layer.groups}"
    if max(layer.dilation_rate) > 1 and any(size % 2 == 0 for size in layer.kernel_size):
        return f"dilated with an even kernel, {layer.kernel_size}"
    if layer.data_format == "channels_first":
        return "channels_first"
    if layer.padding == "causal":
        return "causal padding"
    return "has LoRA weights" if getattr(layer, "lora_enabled", False) else None


def _inseparable(layer: Any) -> str | None:
    if max(layer.kernel_size) == 1:
        return "a 1x1 kernel has nothing to separate"
    if len(set(layer.strides)) > 1:
        return f"strides {layer.strides} differ"
    if max(layer.strides) > 1 and max(layer.dilation_rate) > 1:
        return "both strided and dilated"
    return "has a kernel constraint" if layer.kernel_constraint is not None else None


def _is_first(call: LayerCall, graph: LayerGraph) -> bool:
    """Whether a call sees what the model is given, through nothing but layers without weights."""
    plain = set(graph.inputs)
    for each in graph.calls:
        if each is call:
            return not plain.isdisjoint(call.inputs)
        if not getattr(each.layer, "trainable_weights", ()) and plain.issuperset(each.inputs):
            plain |= set(each.outputs)
    return False


def _kinds() -> dict[type, Any]:
    layers = keras().layers
    return {layers.Conv1D: layers.SeparableConv1D, layers.Conv2D: layers.SeparableConv2D}
