"""`memfit.slim`: the same model with cheaper convolutions or fewer filters."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from memfit.errors import InputError
from memfit.slimming.convolutions import (
    Chosen,
    chosen_convolutions,
    larger_than,
    refuse_inseparable,
    refuse_irreplaceable,
    separable_convolution,
    smaller_kernel,
)
from memfit.slimming.narrow import narrowed, refuse_share
from memfit.slimming.rebuild import Replacement, flat_name, graph_of, rebuild, refuse_shared
from memfit.techniques.layer_graph import LayerCall


def slim(model: Any, *, separable: Chosen = False, kernel_size: int | None = None, width: float | None = None) -> Any:
    """Build a smaller model out of a model. The one given stays as it is.

    Weights are carried over where the shapes allow it; a separable convolution starts as the nearest one to the kernel
    it replaces. Train the result a little before you judge it, and let `memfit.compare` say what it is worth.

    Args:
        model: A built Functional or Sequential model. If it is compiled, so is the result.
        separable: Which convolutions become depthwise separable: `True` for all, a number for kernels of at least that
            size, or names. The first layer and 1x1 convolutions are left alone unless they are named.
        kernel_size: Larger kernels are cut down to this size; the first layer is left alone.
        width: The share of filters every layer keeps, such as 0.5; those with the largest norm.

    Returns:
        A Functional model with the same inputs and outputs; nested models are taken apart.

    Raises:
        InputError: If the model is not Functional, or a layer cannot be replaced; it names the layer.

    Example:
        ```python
        import keras
        import memfit

        model = keras.applications.ResNet50(weights=None)
        smaller = memfit.slim(model, separable=True)
        ```
    """
    if separable is False and kernel_size is None and width is None:
        raise InputError("slim was not told what to do. Pass separable=True, kernel_size=3 or width=0.5.")
    if width is not None:
        refuse_share(width, "width")
    graph = graph_of(model)
    # Everything is chosen and refused by the model as it is, before anything is built.
    to_separate = chosen_convolutions(graph, separable, "separable")
    to_cut = [] if kernel_size is None else larger_than(kernel_size, graph)
    refuse_irreplaceable(to_cut, "kernel_size")
    refuse_irreplaceable(to_separate, "separable")
    refuse_inseparable(to_separate)
    refuse_shared([*to_separate, *to_cut], graph)
    if width is not None:
        model = narrowed(model, width)
    if kernel_size is not None and to_cut:
        model = _replaced(model, to_cut, partial(smaller_kernel, size=kernel_size))
    if to_separate:
        model = _replaced(model, to_separate, separable_convolution)
    return model if width is not None or to_cut or to_separate else rebuild(model, lambda _: None)


def _replaced(model: Any, calls: Sequence[LayerCall], make: Callable[[LayerCall], Replacement]) -> Any:
    """The model with these calls, known by name, replaced."""
    names = {flat_name(call) for call in calls}
    return rebuild(model, lambda call: make(call) if flat_name(call) in names else None)
