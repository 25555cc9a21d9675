"""What the techniques save on the CPU's BFC allocator, and that the estimate of a planned step follows."""

import json
import subprocess
import sys

import pytest

# oneDNN orders the consumers of a tensor by addresses, so TensorFlow runs a step in one of several orders, of which
# the replay has to meet one.
ORDERS = 5
# A child of its own: an allocator can be chosen only once, and must have seen nothing before.
CHILD = """
import json, sys
from memfit.estimation import measure_child
from memfit.hardware import devices
measure_child._set_up(6 * 2**30)
import keras, numpy, tensorflow, memfit
from keras import layers

def residual():
    inputs = tensor = keras.Input((64, 64, 3))
    tensor = layers.Conv2D(32, 3, padding="same")(tensor)
    for _ in range(12):
        branch = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same")(tensor)))
        branch = layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same")(branch))
        tensor = layers.Dropout(0.1)(layers.ReLU()(layers.Add()([tensor, branch])))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(tensor)))

batch = 16
model = residual()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=False)
x, y = numpy.zeros((batch, 64, 64, 3), "float32"), numpy.zeros(batch, "int32")
dataset = tensorflow.data.Dataset.from_tensors((x, y))
# Slices are only close here: each is normalised alone.
with memfit.applied(model, memfit.Plan(**json.loads(sys.argv[1])), numerics="close"):
    model.fit(dataset.repeat(3), verbose=0)
    devices.reset_peak()
    model.fit(dataset.repeat(6), verbose=0)
    measured = devices.memory()[0].peak
    predicted = memfit.estimate(model, batch_size=batch, gpu="cpu", jit=False, resident=x.nbytes).steady_peak
print(json.dumps({"measured": measured, "predicted": predicted.value, "low": predicted.low}))
"""


def run(**plan):
    child = subprocess.run([sys.executable, "-c", CHILD, json.dumps(plan)], capture_output=True, text=True, check=True)
    return json.loads(child.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def plain():
    return run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "share"), [({"remat": 7}, 0.40), ({"micro_batch": 2}, 0.25)], ids=["remat", "micro_batch"]
)
def test_a_technique_saves_what_it_should_and_is_predicted(plain, plan, share):
    assert plain["predicted"] == pytest.approx(plain["measured"], rel=0.06)
    peaks = []
    for _ in range(ORDERS):
        planned = run(**plan)
        assert planned["measured"] <= share * plain["measured"]
        if planned["predicted"] == pytest.approx(planned["measured"], rel=0.06):
            return
        peaks.append(planned["measured"])
    pytest.fail(f"predicted {planned['predicted']}, measured {peaks}")


@pytest.mark.slow
def test_both_together_save_most(plain):
    # Recomputed slices are small, and their order varies most: 25.5 to 45.9 MB in twenty runs, most 27 to 30; 27.7 are
    # predicted, of which the smallest order must not be missed by more than the orders differ.
    planned = run(micro_batch=2, remat=4)
    assert planned["measured"] <= 0.15 * plain["measured"]
    assert planned["low"] <= planned["measured"]
    assert planned["predicted"] <= 1.09 * planned["measured"]
