"""An optimised graph to a `Step`: sizes as functions of the batch, only what runs, each operation with its layer."""

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from memfit.trace.calls import BACKWARD, TYPE
from memfit.trace.step import AHEAD, REDUCTIONS, Dimension, Op, Part, Phase, Step, Tensor, Variable, VariableKind

# Outputs these put into host memory on a GPU, whatever their type (HostMemory in their GPU registrations).
_ON_HOST = frozenset(
    "Shape ShapeN Size Rank Range BroadcastGradientArgs InvertPermutation ConcatOffset VarIsInitializedOp "
    "VariableShape LoopCond VarHandleOp IteratorV2 DataFormatVecPermute DataFormatDimMap".split()
)
# A GPU keeps int32 in host memory except where the kernel says otherwise.
_INT32_ON_DEVICE = frozenset("ArgMax ArgMin Cast IteratorGetNext TopKV2 Unique UniqueV2 Where _Recv".split())
_NEVER_ON_DEVICE = frozenset(("resource", "string", "variant"))

_KEPT_ATTRIBUTES = ("data_format", "padding", "strides", "dilations", "equation", "rnn_mode", "_kernel", AHEAD)
# Gradients, and their sums: the latter have no scope of their own, only that of the loop or function they are in.
_GRADIENT = re.compile(r"(?:^|/)gradient_tape/|^(?:.*/_\d+/\w+/)?(?:\w*PartitionedCall\w*/)*AddN(?:_\d+)?(?:[/-]|$)")
_READS_OR_WRITES = ("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


def read_step(
    graph_def: Any,
    properties: Mapping[str, Any],
    *,
    batch: int,
    only_batch: bool = False,
    outcome: bool,
    otherwise: Step | None,
    phase: Phase,
    gpu: bool,
    variables: Mapping[str, tuple[str, VariableKind]],
    layers: Callable[[str], str | None],
    part: Callable[[str], Part],
    sources: Mapping[str, str],
    idle: Iterable[Variable] = (),
) -> Step:
    """Turn an optimised graph into a step.

    Args:
        graph_def: The graph after Grappler, without functions left to call.
        properties: Output types and shapes.
        batch: The batch size it was traced with, which divides no dimension that is not the batch's.
        only_batch: Whether the step could be traced with that batch size only.
        outcome: How every condition turns out: true for a step whose gradients are finite and applied.
        otherwise: The step with the other outcome.
        phase: Which step it is.
        gpu: Whether it will run on a GPU.
        variables: For each variable handle, the variable's name and kind, in the order of their creation.
        layers: The layer an operation's name belongs to.
        part: The part of the step an operation's name belongs to.
        sources: The user's source line of each layer.
        idle: Variables that are in memory but not in the graph.
    """
    graph = _Graph(graph_def.node)
    # The runtime visits the consumers of a tensor in the order in which Grappler leaves them.
    nodes = _that_run(graph, outcome)
    index = {node.name: position for position, node in enumerate(nodes)}
    created = {name: position for position, name in enumerate(variables)}
    handles = [node for node in nodes if node.op == "VarHandleOp"]
    handles.sort(key=lambda node: created.get(node.name, len(created)))
    variable_index = {node.name: number for number, node in enumerate(handles)}
    ops = []
    for node in nodes:
        data = [_endpoint(name) for name in node.input if not name.startswith("^")]
        control = [name[1:] for name in node.input if name.startswith("^")]
        # The dead input of a Merge is gone with the branch it came from.
        inputs = tuple((index[name], output) for name, output in data if name in index)
        layer = layers(node.name)
        ops.append(
            Op(
                name=node.name,
                type=node.attr[TYPE].s.decode() if TYPE in node.attr else node.op,
                inputs=inputs,
                control_inputs=tuple(index[name] for name in control if name in index),
                outputs=tuple(_tensor(node, each, batch, gpu) for each in properties.get(node.name, ())),
                variable=variable_index.get(graph.handle(data[0][0])) if node.op in _READS_OR_WRITES else None,
                attributes=_attributes(node, graph),
                layer=layer,
                source=sources.get(layer) if layer else None,
                part="backward" if BACKWARD in node.attr else part(node.name),
            )
        )
    return Step(
        phase=phase,
        ops=tuple(_with_unnamed_gradients(ops)),
        variables=(*(_variable(node, variables) for node in handles), *idle),
        device="GPU" if gpu else "CPU",
        input_ops=tuple(index[node.name] for node in nodes if node.op == "IteratorGetNext"),
        otherwise=otherwise,
        only_batch=batch if only_batch else None,
    )


def _with_unnamed_gradients(ops: list[Op]) -> list[Op]:
    """Custom gradients, such as SiLU's, are in no scope; what follows a gradient and is no layer's is one."""
    followers: list[list[int]] = [[] for _ in ops]
    for at, op in enumerate(ops):
        for source in (*(source for source, _ in op.inputs), *op.control_inputs):
            followers[source].append(at)
    waiting = [at for at, op in enumerate(ops) if op.part == "backward" and op.has_samples]
    while waiting:
        for at in followers[waiting.pop()]:
            if ops[at].part == "forward" and ops[at].layer is None:
                ops[at] = replace(ops[at], part="backward")
                waiting.append(at)
    return ops


def layer_of(names: Iterable[str]) -> Callable[[str], str | None]:
    """Find the layer in an operation's name: the innermost path component that is one.

    A step is traced after the model was built, so TensorFlow has put a number behind each layer's name: the scope
    `conv2d_1` is the layer `conv2d`, and `conv2d_1_2` the layer `conv2d_1`.
    """
    known = frozenset(names)

    def find(operation: str) -> str | None:
        for component in reversed(operation.split("/")[:-1]):
            for name in (re.sub(r"_\d+$", "", component), component):
                if name in known:
                    return name
        return None

    return find


def part_of(*optimizers: str | None) -> Callable[[str], Part]:
    """Tell forward, backward and update apart by the scope TensorFlow and Keras put operations in.

    Args:
        optimizers: The names of the optimizers; a second one of the same name gets a number.
    """
    names = "|".join(re.escape(name) for name in optimizers if name)
    update = re.compile(rf"(?:^|/)(?:{names})(?:_\d+)?/") if names else None

    def find(operation: str) -> Part:
        if _GRADIENT.search(operation):
            return "backward"
        return "update" if update and update.search(operation) else "forward"

    return find


class _Graph:
    """Nodes by name with their consumers."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.consumers: dict[str, list[tuple[str, int | None]]] = {name: [] for name in self.nodes}
        for node in self.nodes.values():
            for name in node.input:
                source, output = (name[1:], None) if name.startswith("^") else _endpoint(name)
                self.consumers[source].append((node.name, output))

    def handle(self, name: str) -> str:
        """The variable behind a handle that was passed into a condition or a loop."""
        while self.nodes[name].op in ("Switch", "Identity", "Enter", "Merge"):
            name = _endpoint(self.nodes[name].input[0])[0]
        return name

    def constant(self, name: str) -> Any:
        """The value of a constant, seen through what waits for something else; `None` if it is none."""
        from tensorflow.python.framework import tensor_util

        node = self.nodes[_endpoint(name)[0]]
        while node.op == "Identity":
            node = self.nodes[_endpoint(node.input[0])[0]]
        return tensor_util.MakeNdarray(node.attr["value"].tensor) if node.op == "Const" else None


def _that_run(graph: _Graph, outcome: bool) -> list[Any]:
    """The nodes that run when every condition has this outcome.

    A condition is two Switches per input, of which one output is dead; what needs a dead input is dead too, and a
    Merge is dead only when all of its inputs are.
    """
    dead: set[str] = set()
    dead_inputs: dict[str, int] = {}
    queue = deque((node.name, int(not outcome)) for node in graph.nodes.values() if node.op in ("Switch", "RefSwitch"))
    while queue:
        name, dead_output = queue.popleft()
        for consumer, output in graph.consumers[name]:
            reached = name in dead or output == dead_output
            if not reached or consumer in dead:
                continue
            node = graph.nodes[consumer]
            dead_inputs[consumer] = dead_inputs.get(consumer, 0) + 1
            if node.op == "Merge" and output is not None and dead_inputs[consumer] < len(node.input):
                continue
            dead.add(consumer)
            queue.append((consumer, -1))
    return [node for name, node in graph.nodes.items() if name not in dead]


def _endpoint(name: str) -> tuple[str, int]:
    node, _, output = name.partition(":")
    return node, int(output or 0)


def _tensor(node: Any, properties: Any, batch: int, gpu: bool) -> Tensor:
    from tensorflow.python.framework import dtypes

    dtype = dtypes.as_dtype(properties.dtype)
    if dtype.name in _NEVER_ON_DEVICE:
        return Tensor(dtype.name, 0, (), on_host=True)
    if node.op.startswith("TensorList") and dtype.is_integer and properties.shape.unknown_rank:
        return Tensor(dtype.name, dtype.size, (), on_host=True)  # the shape or length of a list's elements
    on_host = node.op in _ON_HOST or (dtype.name == "int32" and node.op not in _INT32_ON_DEVICE)
    return Tensor(dtype.name, dtype.size, _shape(properties.shape, batch), on_host=gpu and on_host)


def _shape(shape: Any, batch: int) -> tuple[Dimension, ...] | None:
    if shape.unknown_rank or any(dimension.size < 0 for dimension in shape.dim):
        return None
    sizes = [dimension.size for dimension in shape.dim]
    if math.prod(sizes[:2]) == batch and batch not in sizes:
        sizes[:2] = [batch, 1]  # slices of the batch behind each other
    return tuple((size // batch, 0) if size and size % batch == 0 else (0, size) for size in sizes)


def _attributes(node: Any, graph: "_Graph") -> dict[str, object]:
    kept: dict[str, object] = {}
    if node.op in REDUCTIONS and (axes := graph.constant(node.input[1])) is not None:
        kept["axes"] = [int(axis) for axis in axes.reshape(-1)]
    for name in _KEPT_ATTRIBUTES:
        if name in node.attr:
            value = node.attr[name]
            kind = value.WhichOneof("value")
            kept[name] = (
                list(value.list.i) if kind == "list" else value.s.decode() if kind == "s" else getattr(value, kind)
            )
    return kept


def _variable(node: Any, variables: Mapping[str, tuple[str, VariableKind]]) -> Variable:
    from tensorflow.python.framework import dtypes

    size = dtypes.as_dtype(node.attr["dtype"].type).size
    for dimension in node.attr["shape"].shape.dim:
        size *= dimension.size
    name, kind = variables.get(node.name, (node.name, "other"))
    return Variable(name, kind, size, drawn=kind == "parameter" and len(node.attr["shape"].shape.dim) > 1)
