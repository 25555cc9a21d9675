"""The weights of a model that are worth compressing."""

from collections.abc import Sequence
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras
from memfit.slimming.rebuild import refuse_unbuilt

# A depthwise kernel has few weights, and each of them matters.
_KERNELS = ("kernel", "pointwise_kernel")


def kernels_of(model: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The kernels of convolutions and dense layers, by the names of their layers.

    Raises:
        InputError: If it is no built model, or a name is no such layer.
    """
    refuse_unbuilt(model)
    found: dict[str, Any] = {}
    kinds: Any = _kinds()
    for layer in model._flatten_layers(include_self=False):
        for variable in layer.weights if isinstance(layer, kinds) else ():
            if variable.name in _KERNELS:
                # Layers of two nested models may share a name.
                found[variable.path if layer.name in found else layer.name] = variable
    if names is None:
        return found
    if missing := [name for name in names if name not in found]:
        raise InputError(
            f"{', '.join(missing)} is no convolution or dense layer of {model.name!r}. "
            f"Those there are: {', '.join(list(found)[:8]) or 'none'}."
        )
    return {name: found[name] for name in names}


def _kinds() -> tuple[type, ...]:
    layers = keras().layers
    return (
        *(layers.Conv1D, layers.Conv2D, layers.Conv3D, layers.SeparableConv1D, layers.SeparableConv2D),
        *(layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose, layers.Dense),
    )
