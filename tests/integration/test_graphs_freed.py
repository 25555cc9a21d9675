"""Traced steps are freed with their models, and custom gradients still work."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit
from memfit.compat.graph_gradients import gradients_kept_by_graphs
from memfit.errors import RecoveryWarning


@tf.custom_gradient
def tripled_gradient(tensor):
    return tf.identity(tensor), lambda upstream: 3.0 * upstream


class Tripled(layers.Layer):
    def call(self, inputs):
        return tripled_gradient(inputs)


def network():
    inputs = tensor = keras.Input((8,))
    for _ in range(6):
        tensor = layers.Dense(8, activation="tanh")(tensor)
    model = keras.Model(inputs, layers.Dense(1)(Tripled()(tensor)))
    model.compile("adam", "mse")
    return model


def data():
    return np.ones((8, 8), "float32"), np.ones((8, 1), "float32")


def fitted(model, **options):
    memfit.fit(model, *data(), batch_size=4, verbose=0, **options)


@pytest.mark.parametrize(
    "use",
    [
        lambda model: memfit.estimate(model, batch_size=4),
        lambda model: memfit.verify(model, memfit.Plan(remat=2), data()),
        lambda model: fitted(model, recover=True),
        lambda model: fitted(model, plan=memfit.Plan(remat=2)),
        lambda model: fitted(model, plan=memfit.Plan(micro_batch=2), recover=True),
    ],
    ids=["estimate", "verify", "recover", "remat", "micro_batch"],
)
def test_a_model_is_freed_when_nobody_uses_it(use):
    model = network()
    use(model)
    freed = weakref.ref(model)
    del model
    gc.collect()
    assert freed() is None


def test_a_fallback_frees_what_it_replaced():
    full = {"now": True}

    def check(value):
        if full.pop("now", None):
            raise MemoryError("OOM when allocating tensor, on purpose")
        return value

    def checked(tensor):
        return tf.ensure_shape(tf.numpy_function(check, [tensor], tensor.dtype), tensor.shape)

    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(1)(layers.Dense(8)(layers.Lambda(checked)(inputs))))
    model.compile("adam", "mse")
    with pytest.warns(RecoveryWarning):
        fitted(model, recover=True)
    freed = weakref.ref(model)
    del model
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("repeated", [False, True], ids=["straight", "in_a_loop"])
def test_a_function_traced_inside_is_differentiated_afterwards(repeated):
    """A layer's own `tf.function` keeps its graph, and the graph its gradients."""

    @tf.function
    def inner(tensor):
        if repeated:
            return tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, tripled_gradient(x)), (0, tensor))[1]
        return tripled_gradient(tensor)

    def gradient():
        @tf.function
        def outer(tensor):
            with tf.GradientTape() as tape:
                tape.watch(tensor)
                result = inner(tensor)
            return tape.gradient(result, tensor)

        return float(outer(tf.constant(1.0)))

    with gradients_kept_by_graphs():
        first = gradient()
    gc.collect()
    assert first == (9.0 if repeated else 3.0)
    assert gradient() == first
