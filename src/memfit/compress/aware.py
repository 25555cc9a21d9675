"""`memfit.compress.quantization_aware`: training that sees the rounding its file will have."""

from typing import Any

import numpy as np

from memfit.compress.fold import folded
from memfit.framework import keras
from memfit.slimming.rebuild import Replacement, flat_name, graph_of, kept, rebuild
from memfit.techniques.layer_graph import LayerCall


def quantization_aware(model: Any) -> Any:
    """Build a model to be trained a little more before it is quantized to int8. The one given stays as it is.

    Batch normalisation is folded into the convolutions and dense layers before it; their kernels are rounded to eight
    bits per output channel, what they put out to eight bits, both while it trains and when it predicts.

    Args:
        model: A trained Functional or Sequential model. If it is compiled, so is the result.

    Returns:
        The model to train; hand it to `memfit.compress.quantize` afterwards. `memfit.compress.strip` gives the plain
        model back, with the weights it has learned.
    """
    from memfit.compress.rounded import Rounded

    def change(call: LayerCall) -> Replacement | None:
        if type(call.layer) not in _kinds():
            return None
        # The layer's own weights are set when the wrapper has built it.
        copy = kept(call)
        wrapper = Rounded(copy.layers[0], name=f"{flat_name(call)}_rounded", dtype=call.layer.dtype_policy)
        no_range = [np.float32(0), np.float32(0)]
        return Replacement([wrapper], [[*no_range, *copy.weights[0]]])

    return rebuild(folded(model), change)


def stripped(model: Any) -> Any:
    """The plain model: what `quantization_aware` put around layers is taken off. Others come back as they are."""
    from memfit.compress.rounded import Rounded

    if not any(isinstance(call.layer, Rounded) for call in graph_of(model).calls):
        return model

    def change(call: LayerCall) -> Replacement | None:
        if not isinstance(call.layer, Rounded):
            return None
        inner = call.layer.layer
        return Replacement([type(inner).from_config(inner.get_config())], [inner.get_weights()])

    return rebuild(model, change)


def _kinds() -> tuple[type, ...]:
    layers = keras().layers
    return (layers.Conv1D, layers.Conv2D, layers.Dense)
