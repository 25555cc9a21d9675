"""Which gradient is computed first changes what a step holds, and nothing else."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from memfit.compat.graph_order import operation_count
from memfit.techniques.gradient_order import after_updates, weights_before_inputs

SHARED = layers.Dense(8)
MODELS = {
    "convolutions": ((8, 8, 3), [layers.Conv2D(4, 3), layers.LeakyReLU(), layers.Conv2D(2, 3)]),
    "transposed convolutions": ((8, 8, 3), [layers.Conv2DTranspose(4, 3), layers.ReLU(), layers.Conv2DTranspose(2, 3)]),
    "separable convolutions": ((8, 8, 3), [layers.SeparableConv2D(4, 3), layers.DepthwiseConv2D(3)]),
    "volumes": ((6, 6, 6, 2), [layers.Conv3D(4, 3), layers.ReLU(), layers.Conv3D(2, 3)]),
    "sequences": ((12, 3), [layers.Conv1D(4, 3), layers.ReLU(), layers.Conv1D(2, 3)]),
    "dense": ((8,), [layers.Dense(8, activation="relu"), layers.Dense(8, activation="tanh"), layers.Dense(2)]),
    "one layer twice": ((8,), [layers.Dense(8), SHARED, layers.ReLU(), SHARED]),
    "normalization": ((8, 8, 3), [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Conv2D(2, 3)]),
}


def gradients(model, x, *, ordered):
    """Gradients of a traced function and the operations in its graph."""

    @tf.function(autograph=False)
    def compute(x):
        weights = [each._value for each in model.trainable_weights]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True)))
        since = operation_count()
        found = tape.gradient(loss, weights)
        if ordered:
            weights_before_inputs(found, since)
        return found

    return [each.numpy() for each in compute(x)], compute.get_concrete_function(x).graph.get_operations()


def built(name):
    keras.utils.set_random_seed(0)
    shape, stack = MODELS[name]
    tensor = inputs = keras.Input(shape)
    for layer in stack:
        tensor = layer(tensor)
    return keras.Model(inputs, tensor), np.random.default_rng(0).normal(size=(4, *shape)).astype("float32")


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_same_in_the_other_order(name):
    model, x = built(name)
    expected, _ = gradients(model, x, ordered=False)
    found, operations = gradients(model, x, ordered=True)
    for value, plain in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, plain)
    waiting = [each for each in operations if any("gradient_tape" in before.name for before in each.control_inputs)]
    assert waiting, "nothing was ordered"


@pytest.mark.parametrize("name", ["convolutions", "volumes"])
def test_the_gradient_for_inputs_waits_for_that_of_the_weights(name):
    model, x = built(name)
    _, operations = gradients(model, x, ordered=True)
    for_weights = {each.inputs[2].ref(): each for each in operations if "BackpropFilter" in each.type}
    for_inputs = [each for each in operations if "BackpropInput" in each.type]
    assert for_inputs
    assert all(for_weights[each.inputs[2].ref()] in each.control_inputs for each in for_inputs)


def test_what_follows_an_update_waits_for_it():
    variable = tf.Variable(1.0)

    @tf.function(autograph=False)
    def step(x):
        variable.assign_add(1.0)
        (later,) = after_updates([x])
        return later * 2

    graph = step.get_concrete_function(tf.constant(3.0)).graph
    (update,) = [each for each in graph.get_operations() if each.type == "AssignAddVariableOp"]
    assert any(update in each.control_inputs for each in graph.get_operations() if each.type == "Identity")
    assert float(step(tf.constant(3.0))) == 6.0
