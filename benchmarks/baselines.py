"""What people use today to guess the memory of a training step, to compare with."""

import math
from typing import Any

from memfit.compat.optimizers import optimizers_of
from memfit.framework import keras, tensorflow
from memfit.hardware.catalog import GPU
from memfit.trace import grappler
from memfit.trace.batch import batch_spec
from memfit.trace.function import trace
from memfit.trace.tracer import build

_FLOAT32 = 4

MODEL_PROFILER = "1.1.8"
"""The release of model-profiler whose formula `model_profiler` follows: the newest on PyPI, 2026-11-18."""


def model_profiler(model: Any, batch: int) -> int:
    """The "GPU Memory Requirement" of model-profiler 1.1.8 on PyPI.

    Written again here, since the package does not run with Keras 3: it reads `layer.output_shape`, which layers no
    longer have. Its arithmetic is kept, and gives the numbers that the package gives in tf-keras 2: a layer counts
    with its first output, in the type of its variables; a model inside the model is one layer (the package looks inside
    only before TensorFlow 2.6); and each parameter adds one to the bytes, not its size.
    """
    activations = 0
    for layer in model.layers:
        first = keras().tree.flatten(layer.output)[0]
        item = tensorflow().as_dtype(layer.dtype or keras().config.floatx()).size
        activations += item * math.prod(size for size in first.shape if size is not None)
    return int(batch * activations + model.count_params())


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


def grappler_peak(model: Any, batch: int, gpu: GPU, data: Any | None = None) -> int:
    """TensorFlow's own static estimate, `Cluster.DeterminePeakMemoryUsage`, on a virtual GPU at this batch size.

    It counts a variable only while a value read from it is alive (`ReadVariableOp`; handles count 0), so at the peak
    optimizer slots are mostly left out. To be fair those reads are replaced by all variables, which never leave.

    Args:
        model: A compiled model.
        batch: The batch size.
        gpu: The card.
        data: An example batch, for models that have no `Input`.
    """
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import item

    spec = batch_spec(model, data)
    build(model, spec, batch)
    concrete = trace(model, "train", spec(batch), gpu=True)
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
    slots = [slot for optimizer in optimizers_of(model) for slot in optimizer.variables]
    every = [*model.variables, *slots, *model.metrics_variables]
    unique = {id(variable): variable for variable in every}
    return sum(int(variable.value.dtype.size * math.prod(variable.shape)) for variable in unique.values())
