"""What people use today to guess the memory of a training step, to compare with."""

import math
from typing import Any

from memfit.framework import keras
from memfit.hardware.catalog import GPU
from memfit.trace import grappler
from memfit.trace.batch import batch_spec
from memfit.trace.function import trace

_FLOAT32 = 4


def layer_sum(model: Any, batch: int) -> int:
    """The answer copied around as `get_model_memory_usage`: all layer outputs and all parameters, in float32."""
    return _FLOAT32 * (batch * _output_elements(model) + int(model.count_params()))


def _output_elements(model: Any) -> int:
    elements = 0
    for layer in model.layers:
        if isinstance(layer, keras().Model):
            elements += _output_elements(layer)
            continue
        for output in keras().tree.flatten(layer.output):
            elements += math.prod(output.shape[1:])
    return elements


def grappler_peak(model: Any, batch: int, gpu: GPU) -> int:
    """TensorFlow's own static estimate, `Cluster.DeterminePeakMemoryUsage`, on a virtual GPU at this batch size.

    It counts a variable only while a value read from it is alive (`ReadVariableOp`; handles count 0), so at the peak
    optimizer slots are mostly left out. To be fair those reads are replaced by all variables, which never leave.
    """
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import item

    concrete = trace(model, "train", batch_spec(model, None)(batch), gpu=True)
    cluster = grappler.virtual_cluster(gpu)
    meta = grappler.meta_graph(concrete, gpu=True)
    optimised = meta_graph_pb2.MetaGraphDef()
    optimised.CopyFrom(meta)  # keeps the fetches
    optimised.graph_def.CopyFrom(grappler.optimise(meta, gpu))
    usage = cluster.DeterminePeakMemoryUsage(item.Item(optimised, ignore_colocation=True))
    peak, alive = usage[grappler.GPU_DEVICE]
    reads = {node.name for node in optimised.graph_def.node if node.op == "ReadVariableOp"}
    read_bytes = sum(size for name, _, size, *_ in alive if name in reads)
    return int(peak - read_bytes) + _variable_bytes(model)


def _variable_bytes(model: Any) -> int:
    """Weights, slots and metrics, each once."""
    every = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    unique = {id(variable): variable for variable in every}
    return sum(int(variable.value.dtype.size * math.prod(variable.shape)) for variable in unique.values())
