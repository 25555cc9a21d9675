"""A Functional or Sequential model as one list of layer calls, nested models taken apart."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    functional = getattr(model, "_functional", None) or model
    if not hasattr(functional, "_nodes_by_depth") or type(model).call not in (
        keras().Sequential.call,
        type(functional).call,
    ):
        raise InputError(
            f"remat recomputes parts of a graph of layers, and {model.name!r} ({type(model).__name__}) is a model with "
            "a call() of its own. Build it with the Functional API, or use micro_batch and precision."
        )
    return functional


def layer_graph(model: Any) -> LayerGraph:
    """Take a model apart."""
    functional = functional_of(model)
    calls: list[LayerCall] = []
    places = _Places()
    inputs = tuple(places.new() for _ in functional.inputs)
    outputs = _take_apart(functional, inputs, places, calls, "")
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
    functional = getattr(model, "_functional", None) or model
    # Keras writes down the mask it looked for, also where there is none.
    plain = all(value is None for value in node.arguments.kwargs.values()) and len(node.arguments.args) == 1
    if plain and hasattr(functional, "_nodes_by_depth") and len(node.input_tensors) == len(functional.inputs):
        return functional
    return None


def _take_apart_nested(
    functional: Any, node: Any, taken: list[int], places: _Places, calls: list[LayerCall], prefix: str
) -> list[int]:
    def standardise(values: Values, _context: Mapping[str, Any]) -> Sequence[Any]:
        # What the nested model does with its inputs first: data types and ranks.
        packed = keras().tree.pack_sequence_as(functional._inputs_struct, [values[place] for place in taken])
        converted: Sequence[Any] = functional._standardize_inputs(packed)
        return converted

    name = f"{prefix}{node.operation.name}/"
    entered = [places.new() for _ in taken]
    calls.append(LayerCall(f"{name}inputs", None, tuple(taken), tuple(entered), (0,) * len(entered), standardise))
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
