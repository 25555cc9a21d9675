"""Which gradient is computed first changes what a step holds, and nothing else."""

from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from memfit.compat.graph_order import operation_count
from memfit.techniques.gradient_order import after_updates, weights_before_inputs
from memfit.techniques.update_order import updates_in_turn

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


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "accumulating": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.5),
    "clipping": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.1),
    "factored": lambda: keras.optimizers.Adafactor(0.01),
    "scaling": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)),
}


def trained(optimizer, *, in_turn):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), layers.Embedding(10, 6), layers.Flatten(), layers.Dense(3)])
    model.compile(optimizer(), "mse", jit_compile=False)
    x, y = np.random.default_rng(0).integers(0, 10, (32, 4)), np.zeros((32, 3))
    with updates_in_turn(model) if in_turn else nullcontext():
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    assert "apply" not in vars(model.optimizer)
    return [each.numpy() for each in (*model.variables, *model.optimizer.variables)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_in_turn_are_the_same_updates(name):
    plain, ordered = (trained(OPTIMIZERS[name], in_turn=in_turn) for in_turn in (False, True))
    for value, expected in zip(ordered, plain, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_an_update_waits_for_the_one_before():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(4)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step():
        model.optimizer.apply([tf.ones(each.shape) for each in model.trainable_variables], model.trainable_variables)

    with updates_in_turn(model):
        operations = step.get_concrete_function().graph.get_operations()
    updates = [each for each in operations if each.type.startswith("Assign")]
    waited_for = {id(before) for each in operations for before in each.control_inputs}
    # Two slots and a weight for each of four variables, and the count of steps.
    assert len(updates) == 13
    assert all(id(each) in waited_for for each in updates[:-1])
