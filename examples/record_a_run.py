"""Train a small network under a limit, survive running out of memory, and keep a record of it for `memfit report`."""

import os

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # on a CPU, oneDNN's kernels may crash where others report the error

import memfit

memfit.devices.configure(limit="36MiB")  # without a GPU it is the CPU's memory; TensorFlow is imported after it

import keras  # noqa: E402
import numpy as np  # noqa: E402

RECORD = "example.memfit.jsonl"

inputs = features = keras.Input((64,))
for _ in range(8):
    features = keras.layers.Dense(256, activation="relu")(features)
    features = keras.layers.Dropout(0.2)(features)
model = keras.Model(inputs, keras.layers.Dense(4)(features))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

random = np.random.default_rng(0)
x, y = random.normal(size=(8192, 64)).astype("float32"), random.integers(0, 4, 8192)
estimate = memfit.estimate(model, batch_size=2048, gpu="cpu", jit=False)
recorder = memfit.Recorder(RECORD, estimate=estimate, force=True)

# A batch of 2048 does not fit into 36 MiB: each is done in slices, and the result is the same.
memfit.fit(model, x, y, batch_size=2048, epochs=3, verbose=0, callbacks=[recorder], recover=True)
recorder.close()
print(f"Wrote {RECORD}; look at it with: memfit report {RECORD}")
