"""`memfit.compress.prune_filters`: whole filters removed, so that the model really gets smaller."""

from collections.abc import Mapping
from typing import Any

from memfit.compress.prune import refuse_sparsity
from memfit.slimming.narrow import narrowed


def prune_filters(model: Any, sparsity: float | Mapping[str, float] = 0.5) -> Any:
    """Build a model without the filters of smallest norm. The one given stays as it is.

    Every layer that reads a removed filter, such as a normalisation, an addition or a concatenation, becomes narrower
    with it; inputs and outputs of the model stay. Train the result a little to get the accuracy back.

    Args:
        model: A built Functional or Sequential model. If it is compiled, so is the result.
        sparsity: The share of filters to remove, 0 to 1: of every layer, or by layer name.

    Returns:
        The smaller model.

    Raises:
        InputError: If a sparsity is not between 0 and 1, or a layer cannot lose filters; it names the layer.
    """
    for each in sparsity.values() if isinstance(sparsity, Mapping) else (sparsity,):
        refuse_sparsity(each)
    if isinstance(sparsity, Mapping):
        return narrowed(model, {name: 1 - each for name, each in sparsity.items()})
    return narrowed(model, 1 - sparsity)
