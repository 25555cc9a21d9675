"""TensorFlow's own graph optimiser, run for a device that need not be there."""

import json
from typing import Any

from memfit.cache import cached
from memfit.framework import tensorflow_distribution
from memfit.hardware.catalog import GPU

GPU_DEVICE = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"

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
    """The traced graph as a MetaGraphDef that the optimiser takes and whose shapes it can infer.

    Resource placeholders become variable handles and data placeholders iterator outputs: fed placeholders lose
    their shapes on the way through Grappler.
    """
    from tensorflow.core.protobuf import meta_graph_pb2

    graph_def = concrete.graph.as_graph_def(add_shapes=True)
    device = GPU_DEVICE if gpu else CPU_DEVICE
    for node in graph_def.node:
        node.device = device
    for function in graph_def.library.function:
        for node in function.node_def:
            node.device = device
    _replace_placeholders(concrete, graph_def)
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    _set_fetches(meta, fetches(concrete))
    return meta


def fetches(concrete: Any) -> list[str]:
    """What must stay in the graph: its outputs, and the operations that have side effects."""
    return [tensor.name for tensor in concrete.outputs] + [op.name for op in concrete.graph.control_outputs]


def optimise(meta: Any, gpu: GPU | None) -> Any:
    """Run Grappler's default passes for a target; the result is the graph the executor gets."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.grappler import tf_optimizer

    def run() -> bytes:
        config = config_pb2.ConfigProto()
        config.graph_options.rewrite_options.min_graph_nodes = -1
        optimised = tf_optimizer.OptimizeGraph(config, meta, verbose=False, cluster=virtual_cluster(gpu))
        return bytes(optimised.SerializeToString())

    distribution = tensorflow_distribution() or ("", "")
    key = (meta.SerializeToString(deterministic=True), json.dumps(gpu.to_dict() if gpu else None), distribution[1])
    return graph_pb2.GraphDef.FromString(cached("graph", key, run))


def output_properties(graph_def: Any, wanted: list[str]) -> dict[str, Any]:
    """Data type and shape of every output."""
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import item

    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    _set_fetches(meta, wanted)
    properties: dict[str, Any] = item.Item(meta, ignore_colocation=True).GetOpProperties()
    return properties


def _set_fetches(meta: Any, wanted: list[str]) -> None:
    from tensorflow.core.protobuf import meta_graph_pb2

    collection = meta_graph_pb2.CollectionDef()
    collection.node_list.value.extend(wanted)
    meta.collection_def["train_op"].CopyFrom(collection)


def _replace_placeholders(concrete: Any, graph_def: Any) -> None:
    import tensorflow as tf
    from tensorflow.python.ops import handle_data_util

    handles = {}
    for external, internal in concrete.graph.captures:
        if external.dtype == tf.resource:
            data = handle_data_util.get_resource_handle_data(internal)
            if data.shape_and_type:
                handles[internal.op.name] = data.shape_and_type[0]
    batch_nodes = []
    for node in graph_def.node:
        if node.op != "Placeholder":
            continue
        if node.name in handles:
            _make_variable(node, handles[node.name])
        else:
            batch_nodes.append(node)
    iterator = graph_def.node.add()
    iterator.name, iterator.op, iterator.device = "memfit_batch", "IteratorV2", CPU_DEVICE
    iterator.attr["shared_name"].s, iterator.attr["container"].s = b"memfit_batch", b""
    for node in batch_nodes:
        dtype = node.attr["dtype"].type
        shape = type(node.attr["shape"].shape)()
        shape.CopyFrom(node.attr["shape"].shape)
        node.attr.clear()
        for attributes in (node.attr, iterator.attr):
            attributes["output_types"].list.type.append(dtype)
            attributes["output_shapes"].list.shape.add().CopyFrom(shape)
        node.op, node.device = "IteratorGetNext", CPU_DEVICE
        node.input.append(iterator.name)
    if not batch_nodes:
        graph_def.node.remove(iterator)


def _make_variable(node: Any, shape_and_type: Any) -> None:
    node.op = "VarHandleOp"
    node.attr.clear()
    node.attr["dtype"].type = shape_and_type.dtype
    node.attr["shape"].shape.CopyFrom(shape_and_type.shape)
    node.attr["shared_name"].s, node.attr["container"].s = node.name.encode(), b""
