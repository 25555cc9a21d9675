"""A Functional or Sequential model as one list of layer calls, nested models taken apart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras

_ITEM_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1, "int8": 1}

Values = dict[int, Any]
"""Tensors by the number of their place."""


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer or operation: from numbered places to numbered places."""

    name: str
    """The layer's name, with the names of the models it is nested in before it."""
    layer: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sample_bytes: tuple[int, ...]
    """Bytes of each output for one sample; unknown dimensions count as 1."""
    run: Callable[[Values, Mapping[str, Any]], Sequence[Any]]
    """From the tensors so far and the call's context (`training`) to the tensors of the outputs."""
    node: Any = None
    """Keras's own record of the call; `None` where inputs only enter a nested model."""


@dataclass(frozen=True)
class LayerGraph:
    """All calls of a model in an order in which they can run."""

    calls: tuple[LayerCall, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def last_use(self) -> dict[int, int]:
        """For each place, the position of the call that uses it last; the model's outputs are used after all."""
        last = {place: position for position, call in enumerate(self.calls) for place in call.inputs}
        return last | dict.fromkeys(self.outputs, len(self.calls))


def functional_of(model: Any) -> Any:
    """The Functional graph behind a Functional or Sequential model.

    Raises:
        InputError: For any other model.
    """
    if not is_graph(model):
        raise InputError(
            f"{model.name!r} ({type(model).__name__}) is a model with a call() of its own, and not a graph of layers "
            "that can be taken apart. Build it with the Functional API, or use micro_batch and precision."
        )
    return getattr(model, "_functional", None) or model


def is_graph(model: Any) -> bool:
    """Whether a model is a graph of layers and nothing else: built by the Functional API, or Sequential."""
    functional = getattr(model, "_functional", None) or model
    own_call = vars(model).get("call")
    return (
        hasattr(functional, "_nodes_by_depth")
        and type(model).call in (keras().Sequential.call, _functional_class().call)
        and type(model).__call__ is keras().Model.__call__
        # Set by a technique that is applied to the model; any other function is the user's.
        and (own_call is None or getattr(own_call, "recomputes", False))
    )


def _functional_class() -> Any:
    keras()
    return import_module("keras.src.models.functional").Functional


def layer_graph(model: Any) -> LayerGraph:
    """Take a model apart."""
    return _graph(model, _Places(), "")


def layer_graphs(models: Iterable[Any]) -> list[LayerGraph]:
    """Take models apart that have no places in common; the names of calls begin with the name of their model."""
    places = _Places()
    return [_graph(model, places, f"{model.name}/") for model in models]


def joined(graphs: Sequence[LayerGraph]) -> LayerGraph:
    """The calls of graphs without common places as one graph."""
    return LayerGraph(
        tuple(call for graph in graphs for call in graph.calls),
        tuple(place for graph in graphs for place in graph.inputs),
        tuple(place for graph in graphs for place in graph.outputs),
    )


def _graph(model: Any, places: "_Places", prefix: str) -> LayerGraph:
    functional = functional_of(model)
    calls: list[LayerCall] = []
    inputs = tuple(places.new() for _ in functional.inputs)
    outputs = _take_apart(functional, inputs, places, calls, prefix)
    return LayerGraph(tuple(calls), inputs, tuple(outputs))


class _Places:
    def __init__(self) -> None:
        self.count = 0

    def new(self) -> int:
        self.count += 1
        return self.count - 1


def _take_apart(
    functional: Any, inputs: Sequence[int], places: _Places, calls: list[LayerCall], prefix: str
) -> list[int]:
    """Append the calls of a graph whose inputs are in these places; returns where its outputs are."""
    where = {id(tensor): place for tensor, place in zip(functional.inputs, inputs, strict=True)}
    for depth in sorted(functional._nodes_by_depth, reverse=True):
        for node in functional._nodes_by_depth[depth]:
            if not node.operation or node.is_input:
                continue
            taken = [where[id(tensor)] for tensor in node.input_tensors]
            if nested := _nested(node):
                made = _take_apart_nested(nested, node, taken, places, calls, prefix)
            else:
                made = [places.new() for _ in node.outputs]
                calls.append(_call(node, taken, made, prefix, dict(where)))
            where |= {id(tensor): place for tensor, place in zip(node.outputs, made, strict=True)}
    return [where[id(tensor)] for tensor in functional.outputs]


def _nested(node: Any) -> Any | None:
    """The graph of a nested model that is called with its inputs and nothing else."""
    model = node.operation
    if (
        not isinstance(model, keras().Model)
        or not is_graph(model)
        or model.supports_masking
        or model.activity_regularizer is not None
        or len(node.arguments.args) != 1
    ):
        return None
    # Keras writes down the mask it looked for, also where there is none; `training` is what the outer model says.
    others = {name: value for name, value in node.arguments.kwargs.items() if name not in ("training", "mask")}
    optional = any(value is None for value in keras().tree.flatten(node.arguments.args))
    return None if others or optional else functional_of(model)


def _take_apart_nested(
    functional: Any, node: Any, taken: list[int], places: _Places, calls: list[LayerCall], prefix: str
) -> list[int]:
    model = node.operation
    needed = dict(zip((id(tensor) for tensor in node.input_tensors), taken, strict=True))

    def enter(values: Values, _context: Mapping[str, Any]) -> Sequence[Any]:
        # What the nested model does with its inputs first: masks, data types and ranks.
        tree = keras().tree
        (inputs,), kwargs = node.arguments.fill_in({key: values[place] for key, place in needed.items()})
        masks = [getattr(each, "_keras_mask", None) for each in tree.flatten(inputs)]
        given = [each for each in tree.flatten(kwargs.get("mask")) if each is not None]
        if model._convert_input_args:
            inputs = tree.map_structure(
                lambda each: model.dtype_policy.convert_input(each, model.autocast, model.input_dtype), inputs
            )
        converted: Sequence[Any] = functional._standardize_inputs(inputs)
        for tensor, mask in zip(converted, given or masks, strict=False):
            if mask is not None:
                tensor._keras_mask = mask
        return converted

    name = f"{prefix}{model.name}/"
    entered = [places.new() for _ in functional.inputs]
    calls.append(LayerCall(f"{name}inputs", None, tuple(taken), tuple(entered), (0,) * len(entered), enter))
    return _take_apart(functional, entered, places, calls, name)


def _call(node: Any, taken: list[int], made: list[int], prefix: str, where: dict[int, int]) -> LayerCall:
    operation = node.operation
    needed = {id(tensor): where[id(tensor)] for tensor in node.input_tensors}
    context_names = getattr(operation, "_call_context_args", ())

    def run(values: Values, context: Mapping[str, Any]) -> Sequence[Any]:
        args, kwargs = node.arguments.fill_in({key: values[place] for key, place in needed.items()})
        kwargs |= {name: value for name, value in context.items() if name in context_names and value is not None}
        found: Sequence[Any] = keras().tree.flatten(operation(*args, **kwargs))
        return found

    sizes = tuple(_sample_bytes(tensor) for tensor in node.outputs)
    return LayerCall(f"{prefix}{operation.name}", operation, tuple(taken), tuple(made), sizes, run, node)


def _sample_bytes(tensor: Any) -> int:
    size = _ITEM_BYTES.get(tensor.dtype, 4)
    for dimension in tensor.shape[1:]:
        size *= dimension or 1
    return size
