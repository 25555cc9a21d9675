"""Models that train on several replicas: their steps are left to Keras, and no plan is taken on trust."""

import subprocess
import sys

import pytest

# Devices can be divided only once in a process.
CHILD = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import memfit
from memfit.errors import NotExactError

x, y = np.random.default_rng(0).normal(size=(8, 4)), np.zeros((8, 1))

def trained(fit):
    keras.utils.set_random_seed(0)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    fit(model, x, y, batch_size=4, shuffle=False, verbose=0)
    return model.get_weights()

plain = trained(keras.Model.fit)
recovering = trained(lambda *args, **kwargs: memfit.fit(*args, recover=True, **kwargs))
for mine, theirs in zip(recovering, plain):
    np.testing.assert_array_equal(mine, theirs)
try:
    trained(lambda *args, **kwargs: memfit.fit(*args, plan=memfit.Plan(remat=2), **kwargs))
except NotExactError as error:
    print(error)
"""


@pytest.mark.slow
def test_recovery_steps_aside_and_a_plan_that_cannot_be_verified_is_refused():
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    assert "cannot be verified, because the model trains on several replicas" in child.stdout
