"""Augmentation and resizing inside of the model, where they take the device's memory."""

import math
from collections.abc import Iterator
from typing import Any

from memfit.framework import keras
from memfit.observe.events import Finding
from memfit.observe.live_causes.view import View
from memfit.units import format_size

_HEAVY = (
    "Resizing CenterCrop AutoContrast Equalization Solarization RandAugment AugMix MixUp CutMix MaxNumBoundingBoxes"
).split()
# One elementwise operation, which is cheap: named only beside others.
_CHEAP = ("Rescaling", "Normalization")


def find(view: View) -> Iterator[Finding]:
    """Only where memory is scarce; on a CPU without a limit it makes no difference where they run."""
    if view.device is None:
        return
    for model in view.trained:
        layers = list(model._flatten_layers(include_self=False))
        heavy = [layer for layer in layers if _is_heavy(layer)]
        if not heavy:
            continue
        cheap = [layer for layer in layers if type(layer).__name__ in _CHEAP and _is_keras(layer)]
        names = ", ".join(f"{layer.name} ({type(layer).__name__})" for layer in [*heavy, *cheap])
        size = sum(_sample_bytes(layer) or 0 for layer in heavy)
        each = f", {format_size(size)} of results for every sample of a batch" if size else ""
        yield Finding(
            at=view.at,
            id="preprocessing-in-model",
            title=f"{model.name!r} augments or resizes its images on {view.device.device}",
            evidence=f"Inside of the model: {names}{each}.",
            cause="Preprocessing layers inside of a model run on the device, on the whole batch, in every step.",
            fix="train = train.map(lambda x, y: (augment(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)",
            severity="note",
        )
        return


def _is_heavy(layer: Any) -> bool:
    name = type(layer).__name__
    return _is_keras(layer) and (name.startswith("Random") or name in _HEAVY)


def _is_keras(layer: Any) -> bool:
    return getattr(keras().layers, type(layer).__name__, None) is type(layer)


def _sample_bytes(layer: Any) -> int | None:
    try:
        shape = tuple(layer.output.shape[1:])
    except (AttributeError, ValueError):
        return None
    return None if None in shape else math.prod(shape) * 4
