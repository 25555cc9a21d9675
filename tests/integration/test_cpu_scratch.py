"""Scratch memory of TensorFlow's own CPU kernels, and an optimizer that there is no memory for."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.compat.convolution_kernels import LABEL, smaller_than
from memfit.compat.optimizers import built_whole

# An allocator, and oneDNN, can be chosen only once in a process.
CHILD = """
import json, sys
import memfit
memfit.devices.configure(limit="1GiB")
import keras, numpy as np
from keras import layers

keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.Input((28, 28, 1)),
    layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
    layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu"),
    layers.Conv2D(1, 3, padding="same"),
])
model.compile("adam", "mse", jit_compile=False)
x = np.random.default_rng(0).normal(size=(16, 28, 28, 1)).astype("float32")
plan = memfit.Plan(**json.loads(sys.argv[1]))
with memfit.applied(model, plan):
    predicted = memfit.estimate(model, 8, gpu="cpu", jit=False).steady_peak
    model.fit(x, x, batch_size=8, epochs=2, verbose=0)
print(json.dumps({
    "peak": memfit.devices.memory()[0].peak,
    "predicted": predicted.value,
    "weights": [np.asarray(each).tolist() for each in model.get_weights()],
    "planned": memfit.plan(model, 8, "20MiB", gpu="cpu", jit=False).techniques,
}))
"""


def trained(**plan):
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(plan)], capture_output=True, text=True, check=True, env=environment
    )
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_cap_takes_the_buffers_of_patches_away_and_changes_nothing_else():
    plain, capped = trained(), trained(workspace="1MiB")
    for value, expected in zip(capped["weights"], plain["weights"], strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
    assert plain["peak"] > 30 * 2**20 > 20 * 2**20 > capped["peak"]
    assert plain["predicted"] > 25 * 2**20 > 15 * 2**20 > capped["predicted"]
    assert plain["planned"] == {"workspace": "1MiB"}


class CompiledConvolutions(layers.Layer):
    """Convolutions in a function that XLA compiles, inside a step that it does not compile."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(3, 3, shape[-1], 4))

    @tf.function(jit_compile=True)
    def convolved(self, inputs, kernel):
        once = tf.nn.conv2d(inputs, kernel, 1, "SAME")
        return tf.nn.conv2d_transpose(once, kernel, tf.shape(inputs), 1, "SAME")

    def call(self, inputs):
        return self.convolved(inputs, tf.convert_to_tensor(self.kernel))


class TwiceInALoop(layers.Conv2D):
    def call(self, inputs):
        def body(count, tensor):
            return count + 1, super(TwiceInALoop, self).call(tensor)

        return tf.while_loop(lambda count, _: count < 2, body, (0, inputs))[1]


CONVOLUTIONS = {
    "plain": lambda: layers.Conv2D(4, 3, padding="same"),
    "strided": lambda: layers.Conv2D(4, (3, 2), strides=2),
    "point": lambda: layers.Conv2D(4, 1),
    "transposed": lambda: layers.Conv2DTranspose(4, 3, strides=2, padding="same"),
    "grouped": lambda: layers.Conv2D(4, 3, groups=2, padding="same"),
    "grouped_strided": lambda: layers.Conv2D(8, 5, strides=3, groups=4),
    "dilated": lambda: layers.Conv2D(4, 3, dilation_rate=2, padding="same"),
    "depthwise": lambda: layers.DepthwiseConv2D(3, padding="same"),
    "separable": lambda: layers.SeparableConv2D(4, 3),
    "one_dimension": lambda: keras.Sequential(
        [layers.Reshape((-1, 4)), layers.Conv1D(4, 3), layers.Reshape((-1, 1, 4))]
    ),
    "in_a_loop": lambda: TwiceInALoop(4, 3, padding="same"),
    "compiled": CompiledConvolutions,
    "double": lambda: layers.Conv2D(4, 3, dtype="float64"),
    "half": lambda: layers.Conv2D(4, 3, dtype="mixed_bfloat16"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_kernels_without_a_buffer_compute_the_same(name):
    """Those that do not are left alone: for groups of channels TensorFlow's crash or write where they must not."""

    def trained(limit):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((13, 10, 4)), layers.Conv2D(4, 3), CONVOLUTIONS[name]()])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        x = np.random.default_rng(0).normal(size=(5, 13, 10, 4)).astype("float32")
        y = np.random.default_rng(1).normal(size=(5, *model.output_shape[1:])).astype("float32")
        with smaller_than(limit, lambda: False):
            losses = [model.train_on_batch(x, y) for _ in range(3)]
        return losses, model.get_weights()

    losses, weights = trained(2**40)
    again, after = trained(0)
    assert again == pytest.approx(losses, rel=1e-5)
    for value, expected in zip(after, weights, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [("plain", 2), ("strided", 2), ("transposed", 2), ("in_a_loop", 2), ("grouped", 0), ("compiled", 0), ("half", 0)],
)
def test_kernels_without_a_buffer_are_chosen_where_they_compute_the_same(name, chosen):
    keras.utils.set_random_seed(0)
    layer = CONVOLUTIONS[name]()
    layer.build((None, 13, 10, 4))

    def gradients(tensor):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            result = layer(tensor)
        return tape.gradient(result, [tensor, *(each.value for each in layer.trainable_variables)])

    with smaller_than(0, lambda: False):
        traced = tf.function(gradients).get_concrete_function(tf.TensorSpec([None, 13, 10, 4]))
    functions = traced.graph.as_graph_def()
    nodes = [*functions.node, *(node for each in functions.library.function for node in each.node_def)]
    labelled = [node.op for node in nodes if node.attr["_kernel"].s == LABEL.encode()]
    assert len(labelled) == chosen


def test_no_convolution_is_labelled_where_xla_compiles():
    model = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3)])
    model.compile("sgd", "mse", jit_compile=True)
    x = np.zeros((2, 8, 8, 1), "float32")
    with memfit.applied(model, memfit.Plan(workspace="1MiB")):
        assert np.isfinite(model.train_on_batch(x, np.zeros((2, 6, 6, 4), "float32")))


def test_an_optimizer_that_there_is_no_memory_for_is_built_the_next_time(monkeypatch):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)])
    model.compile("rmsprop", "mse")
    optimizer, full = model.optimizer, [True]
    original = type(optimizer).add_variable_from_reference

    def add(self, *args, **kwargs):
        if full and len(self._variables) > 3:
            full.clear()
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(optimizer), "add_variable_from_reference", add)
    with pytest.raises(tf.errors.ResourceExhaustedError), built_whole([optimizer]):
        optimizer.build(model.trainable_variables)
    assert not optimizer.built
    model.fit(np.zeros((2, 4)), np.zeros((2, 1)), verbose=0)
    assert len(optimizer.variables) == 2 + 4
