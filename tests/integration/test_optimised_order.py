"""The order in which TensorFlow runs operations, read from its own runs: predictions stand and fall with it."""

import importlib

import keras
import pytest
import tensorflow as tf
from keras import layers

from memfit.hardware.catalog import find_gpu
from memfit.trace import grappler
from memfit.trace.batch import batch_spec
from memfit.trace.function import trace
from memfit.trace.tracer import build


def _convolutional():
    inputs = keras.Input((16, 16, 3))
    x = layers.Conv2D(8, 3, padding="same")(inputs)
    for _ in range(3):
        y = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", activation="relu")(x))
        x = layers.add([x, layers.Conv2D(8, 3, padding="same")(y)])
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x)
    return keras.Model(inputs, layers.Conv2D(3, 3, padding="same")(x)), (16, 32, 32, 3)


def _dense():
    inputs = keras.Input((32,))
    x = layers.Dense(16, activation="gelu")(inputs)
    x = layers.Dropout(0.5)(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(4)(layers.concatenate([x, layers.Dense(8)(x)]))), (16, 4)


def _attention():
    inputs = keras.Input((12, 16))
    x = layers.MultiHeadAttention(2, 8)(inputs, inputs)
    x = layers.LayerNormalization()(layers.add([inputs, x]))
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling1D()(x))), (16, 4)


@pytest.mark.parametrize("make", [_convolutional, _dense, _attention])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_consumers_of_a_tensor_are_in_the_order_of_a_run(make, optimizer):
    model, target = make()
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    batch = tf.zeros((16, *model.input_shape[1:])), tf.zeros(target)
    spec = batch_spec(model, batch)
    build(model, spec, 16)
    traced = grappler.meta_graph(trace(model, "train", spec(16), gpu=False), gpu=False)
    predicted = grappler.optimise(traced, None)
    grappler.alone(predicted)

    ran = _optimised_by_a_run(model, batch)
    expected, found = _consumers(ran), _consumers(predicted)
    compared = different = 0
    for source, consumers in expected.items():
        ours = [each for each in found.get(source, ()) if each in consumers]
        theirs = [each for each in consumers if each in ours]
        # More than eight are walked in the order of their addresses.
        if 1 < len(set(theirs)) <= 8:
            compared += 1
            different += ours != theirs
    assert compared >= 20
    assert different <= 0.05 * compared, f"{different} of {compared} differ"


@pytest.mark.parametrize("make", [_convolutional, _dense, _attention])
def test_names_without_lists_of_kernels_change_nothing_else(make, monkeypatch):
    monkeypatch.setenv("MEMFIT_CACHE", "off")
    model, target = make()
    model.compile("adam", "mse", jit_compile=False)
    spec = batch_spec(model, (tf.zeros((16, *model.input_shape[1:])), tf.zeros(target)))
    build(model, spec, 16)
    traced = grappler.meta_graph(trace(model, "train", spec(16), gpu=True), gpu=True)
    gpu = find_gpu("RTX 3070")
    optimised = grappler.optimise(traced, gpu)
    monkeypatch.setattr(grappler, "_without_lists_of_kernels", lambda meta: meta)
    assert optimised == grappler.optimise(traced, gpu)


def _optimised_by_a_run(model, batch):
    """The graph of the training function as TensorFlow ran it."""
    context = importlib.import_module("tensorflow.python.eager.context")
    context.enable_run_metadata()
    try:
        model.fit(tf.data.Dataset.from_tensors(batch), shuffle=False, verbose=0)
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    return max((each.post_optimization_graph for each in graphs), key=lambda graph: len(graph.node))


def _consumers(graph_def):
    """The consumers of each node, in the order of the graph."""
    found = {}
    for node in graph_def.node:
        for name in node.input:
            if not name.startswith("^"):
                source = name.partition(":")[0].removeprefix("StatefulPartitionedCall/")
                found.setdefault(source, []).append(node.name.removeprefix("StatefulPartitionedCall/"))
    return found
