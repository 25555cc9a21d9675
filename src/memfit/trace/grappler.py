"""TensorFlow's own graph optimiser, run for a device that need not be there."""

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

from memfit.cache import cached
from memfit.framework import tensorflow_distribution
from memfit.hardware.catalog import GPU

GPU_DEVICE = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"

# The nodes of a training function around the step that it calls, by the names they have there.
_CALL, _NEXT, _OPTIONAL = "StatefulPartitionedCall", "IteratorGetNext", "optional"
_DONE, _RESULT, _RETURNED = "NoOp", "Identity", "identity_RetVal"
_AROUND = frozenset(("iterator", _CALL, _OPTIONAL, _DONE, _RESULT, _RETURNED))
_INLINED = f"Func/{_CALL}"
_NAMES = "_memfit_names"
_UNLISTED = "_Mkl"
_RESOURCE, _VARIANT = 20, 21  # of types.proto

# What the architecture has per multiprocessor, where the catalog has no column for it; the passes that decide
# about memory (layout, pruning, constant folding) read only type, architecture and memory size.
_PLENTY = 1 << 50
_L1_CACHE, _SHARED_MEMORY, _REGISTERS = 128 * 2**10, 100 * 2**10, 65536


def virtual_cluster(gpu: GPU | None) -> Any:
    """A cluster of one virtual CPU and, for a GPU target, one virtual GPU of its kind."""
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster

    cpu = device_properties_pb2.NamedDevice(name=CPU_DEVICE)
    cpu.properties.type, cpu.properties.frequency, cpu.properties.num_cores = "CPU", 2000, 8
    cpu.properties.memory_size = _PLENTY
    if gpu is None:
        return cluster.Cluster(devices=[cpu])
    device = device_properties_pb2.NamedDevice(name=GPU_DEVICE)
    properties = device.properties
    major, minor = gpu.compute_capability or (8, 6)
    properties.type, properties.vendor, properties.model = "GPU", "NVIDIA", gpu.name
    properties.frequency = int((gpu.clock_hz or 1.5e9) / 1e6)
    properties.num_cores = gpu.multiprocessors or 28
    properties.environment["architecture"] = f"{major}.{minor}"
    properties.environment["cuda"], properties.environment["cudnn"] = "12050", "9000"
    # Never too small: the memory optimiser swaps to the host by a static estimate that `fit` seldom triggers.
    properties.memory_size = _PLENTY
    properties.bandwidth = int((gpu.bandwidth or 360e9) / 1e3)
    properties.num_registers, properties.l1_cache_size = _REGISTERS, _L1_CACHE
    properties.l2_cache_size = gpu.l2_cache or 3 * 2**20
    properties.shared_memory_size_per_multiprocessor = _SHARED_MEMORY
    return cluster.Cluster(devices=[device, cpu])


def meta_graph(concrete: Any, *, gpu: bool) -> Any:
    """The graph that TensorFlow's runtime hands to its optimiser: a training function that calls the traced step.

    The order in which the optimiser leaves operations decides in which they run, and hangs on every node it was given
    and on what it may not remove. So this is built as `Model.fit` and the runtime do: the batch comes from an iterator,
    variables are arguments, the call is inlined (inline_function_utils.cc), and the result is an optional.

    Args:
        concrete: The traced step.
        gpu: Whether it will run on a GPU.
    """
    from tensorflow.core.protobuf import meta_graph_pb2

    traced = concrete.graph.as_graph_def(add_shapes=True)
    meta = meta_graph_pb2.MetaGraphDef()
    graph_def = meta.graph_def
    graph_def.versions.CopyFrom(traced.versions)
    graph_def.library.CopyFrom(traced.library)
    builder = _Builder(graph_def, GPU_DEVICE if gpu else CPU_DEVICE)
    for function in graph_def.library.function:
        for node in function.node_def:
            node.device = builder.device
    builder.arguments(concrete, {node.name: node for node in traced.node if node.op == "Placeholder"})
    builder.ending(concrete)
    builder.body(traced, concrete)
    _set_fetches(meta, [name for name in (_RETURNED, _NEXT, _CALL) if name in builder.names])
    return meta


class _Builder:
    """Puts nodes into a graph in the order in which the runtime does."""

    def __init__(self, graph_def: Any, device: str) -> None:
        self.graph_def, self.device = graph_def, device
        self.names: set[str] = set()
        self._sources: dict[str, str] = {}

    def add(self, name: str, op: str, inputs: Iterable[str] = (), **types: int) -> Any:
        """A node, with data types as its attributes."""
        node = self.graph_def.node.add()
        node.name, node.op, node.device = name, op, self.device
        node.input.extend(inputs)
        for key, value in types.items():
            node.attr[key].type = value
        self.names.add(name)
        return node

    def arguments(self, concrete: Any, placeholders: Mapping[str, Any]) -> None:
        """The iterator, the variables and the next batch; with them the shapes that the optimiser infers others from.

        Args:
            concrete: The traced step.
            placeholders: The nodes that stand for its inputs.
        """
        handles = _handles(concrete)
        inputs = [name for tensor in concrete.inputs if (name := tensor.op.name) in placeholders]
        data = [name for name in inputs if name not in handles]
        if data:
            self.add("iterator", "_Arg", T=_RESOURCE).attr["index"].i = 0
        for position, name in enumerate(name for name in inputs if name in handles):
            argument = self.add("unknown" if position == 0 else f"unknown_{position - 1}", "_Arg", T=_RESOURCE)
            argument.attr["index"].i = position + 1
            argument.attr["_handle_dtypes"].list.type.append(handles[name].dtype)
            argument.attr["_handle_shapes"].list.shape.add().CopyFrom(handles[name].shape)
            argument.attr["_output_shapes"].list.shape.add()
            argument.attr[_NAMES].list.s.append(name.encode())
            self._sources[name] = argument.name
        if data:
            batch = self.add(_NEXT, "IteratorGetNext", ["iterator"])
            batch.device = CPU_DEVICE
        for position, name in enumerate(data):
            batch.attr["output_types"].list.type.append(placeholders[name].attr["dtype"].type)
            batch.attr["output_shapes"].list.shape.add().CopyFrom(placeholders[name].attr["shape"].shape)
            batch.attr[_NAMES].list.s.append(name.encode())
            self._sources[name] = f"{_NEXT}:{position}" if position else _NEXT

    def ending(self, concrete: Any) -> None:
        """What the training function does with the results of the step."""
        done = [f"^{name}" for name in (_NEXT, _CALL) if name in self.names or name == _CALL]
        if concrete.outputs:
            optional = self.add(_OPTIONAL, "OptionalFromValue")
            for position, tensor in enumerate(concrete.outputs):
                optional.attr["Toutput_types"].list.type.append(tensor.dtype.as_datatype_enum)
                optional.input.append(f"{_INLINED}/output/_{len(concrete.inputs) + position}")
        self.add(_DONE, "NoOp", done)
        if concrete.outputs:
            self.add(_RESULT, "Identity", [_OPTIONAL, f"^{_DONE}"], T=_VARIANT)
            self.add(_RETURNED, "_Retval", [_RESULT], T=_VARIANT).attr["index"].i = 0

    def body(self, traced: Any, concrete: Any) -> None:
        """The step in the place of its call."""
        inputs = [tensor for tensor in concrete.inputs if tensor.op.name in self._sources]
        called = {}
        for position, tensor in enumerate(inputs):
            name = f"{_INLINED}/input/_{position}"
            self.add(name, "Identity", [self._sources[tensor.op.name]], T=tensor.dtype.as_datatype_enum)
            called[tensor.op.name] = name

        def renamed(name: str) -> str:
            control, name = ("^", name[1:]) if name.startswith("^") else ("", name)
            return control + (called.get(name.partition(":")[0]) or f"{_CALL}/{name}")

        for node in traced.node:
            if node.name in called:
                continue
            copy = self.add(f"{_CALL}/{node.name}", node.op, map(renamed, node.input))
            for key, value in node.attr.items():
                copy.attr[key].CopyFrom(value)
            for position, place in enumerate(node.attr["_class"].list.s if "_class" in node.attr else ()):
                kind, _, name = place.decode().partition("@")
                copy.attr["_class"].list.s[position] = f"{kind}@{renamed(name)}".encode()
        for position, tensor in enumerate(concrete.outputs):
            name = f"{_INLINED}/output/_{len(concrete.inputs) + position}"
            self.add(name, "Identity", [renamed(tensor.name.removesuffix(":0"))], T=tensor.dtype.as_datatype_enum)
        last = f"{_INLINED}/output_control_node/_{len(concrete.inputs) + len(concrete.outputs)}"
        self.add(last, "NoOp", [f"^{renamed(op.name)}" for op in concrete.graph.control_outputs])
        self.add(_CALL, "NoOp", [f"^{last}"])


def _handles(concrete: Any) -> dict[str, Any]:
    """Type and shape behind each variable's handle."""
    import tensorflow as tf
    from tensorflow.python.ops import handle_data_util

    found = {}
    for outside, inside in concrete.graph.captures:
        if outside.dtype == tf.resource:
            data = handle_data_util.get_resource_handle_data(inside)
            if data.shape_and_type:
                found[inside.op.name] = data.shape_and_type[0]
    return found


def alone(graph_def: Any) -> list[str]:
    """Leave the step alone in an optimised graph, in place, with the names that it was traced with.

    Variables become handles and each part of the batch an operation.

    Returns:
        What must stay in the graph: its results, and the operations that have side effects.
    """
    names: dict[str, str] = {
        f"{node.name}:{position}" if position else node.name: name.decode()
        for node in graph_def.node
        if _NAMES in node.attr
        for position, name in enumerate(node.attr[_NAMES].list.s)
    }

    def renamed(name: str) -> str:
        control, name = ("^", name[1:]) if name.startswith("^") else ("", name)
        return control + names.get(name, name.removeprefix(f"{_CALL}/"))

    wanted: list[str] = []
    kept: list[Any] = []
    for node in graph_def.node:
        if node.name in _AROUND:
            inputs = (name.removeprefix("^") for name in node.input)
            wanted += [renamed(name) for name in inputs if name not in _AROUND and name != _NEXT]
        elif node.op == "_Arg":
            kept.append(_variable(node))
        elif node.op == "IteratorGetNext":
            kept += _batch(node)
        else:
            copy = deepcopy(node)
            copy.name = renamed(node.name)
            del copy.input[:]
            copy.input.extend(map(renamed, node.input))
            kept.append(copy)
    del graph_def.node[:]
    graph_def.node.extend(kept)
    return wanted


def _variable(argument: Any) -> Any:
    node = type(argument)()
    node.name, node.op, node.device = argument.attr[_NAMES].list.s[0].decode(), "VarHandleOp", argument.device
    node.attr["dtype"].type = argument.attr["_handle_dtypes"].list.type[0]
    node.attr["shape"].shape.CopyFrom(argument.attr["_handle_shapes"].list.shape[0])
    node.attr["shared_name"].s, node.attr["container"].s = node.name.encode(), b""
    return node


def _batch(taken: Any) -> list[Any]:
    """An operation for each part of the batch; the iterator comes first."""
    iterator = type(taken)()
    iterator.name, iterator.op, iterator.device = "memfit_batch", "IteratorV2", CPU_DEVICE
    iterator.attr["shared_name"].s, iterator.attr["container"].s = b"memfit_batch", b""
    parts = [iterator]
    for position, name in enumerate(taken.attr[_NAMES].list.s):
        node = type(taken)()
        node.name, node.op, node.device = name.decode(), "IteratorGetNext", CPU_DEVICE
        node.input.append(iterator.name)
        for attributes in (node.attr, iterator.attr):
            attributes["output_types"].list.type.append(taken.attr["output_types"].list.type[position])
            shape = attributes["output_shapes"].list.shape.add()
            shape.CopyFrom(taken.attr["output_shapes"].list.shape[position])
        parts.append(node)
    return parts


def optimise(meta: Any, gpu: GPU | None) -> Any:
    """Run Grappler's default passes for a target; the result is the graph the executor gets."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.grappler import tf_optimizer

    def run() -> bytes:
        config = config_pb2.ConfigProto()
        config.graph_options.rewrite_options.min_graph_nodes = -1
        quick = _without_lists_of_kernels(meta) if gpu else meta
        optimised = tf_optimizer.OptimizeGraph(config, quick, verbose=False, cluster=virtual_cluster(gpu))
        if gpu:
            _rename(optimised, lambda name: name.replace(_UNLISTED, ""))
        return bytes(optimised.SerializeToString())

    distribution = tensorflow_distribution() or ("", "")
    key = (meta.SerializeToString(deterministic=True), json.dumps(gpu.to_dict() if gpu else None), distribution[1])
    return graph_pb2.GraphDef.FromString(cached("graph", key, run))


def _without_lists_of_kernels(meta: Any) -> Any:
    """The same graph with names for which TensorFlow does not look up what it would warn about.

    Whenever the optimiser changes a node whose kernel is not in this build, as those of a GPU in one for CPUs, it
    searches all registered kernels for a warning (`FindKernelDef` in op_kernel.cc) that nobody sees: half of the time
    that a ResNet50 takes. For names that start like this it does not. One prefix for all nodes keeps their order.
    """
    renamed = type(meta)()
    renamed.CopyFrom(meta)
    _rename(renamed.graph_def, lambda name: f"{_UNLISTED}{name}")
    _set_fetches(renamed, [f"{_UNLISTED}{name}" for name in meta.collection_def["train_op"].node_list.value])
    return renamed


def _rename(graph_def: Any, renamed: Callable[[str], str]) -> None:
    """Give the nodes of a graph other names, in place."""

    def endpoint(name: str) -> str:
        return f"^{renamed(name[1:])}" if name.startswith("^") else renamed(name)

    for node in graph_def.node:
        node.name = renamed(node.name)
        node.input[:] = [endpoint(name) for name in node.input]
        if "_class" in node.attr:
            places = node.attr["_class"].list
            split = [place.decode().partition("@") for place in places.s]
            places.s[:] = [f"{kind}@{renamed(name)}".encode() for kind, _, name in split]


def output_properties(graph_def: Any, wanted: list[str]) -> dict[str, Any]:
    """Data type and shape of every output."""
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import item

    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    # Nothing is wanted of a model that returns its inputs; TensorFlow refuses a graph without a result.
    _set_fetches(meta, wanted or [node.name for node in graph_def.node])
    properties: dict[str, Any] = item.Item(meta, ignore_colocation=True).GetOpProperties()
    return properties


def _set_fetches(meta: Any, wanted: list[str]) -> None:
    from tensorflow.core.protobuf import meta_graph_pb2

    collection = meta_graph_pb2.CollectionDef()
    collection.node_list.value.extend(wanted)
    meta.collection_def["train_op"].CopyFrom(collection)
