"""Make a small network smaller in four ways, and see what each is worth."""

import tempfile
from pathlib import Path

import keras
import numpy as np

import memfit

layers = [keras.layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(3)]
head = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(4)]
model = keras.Sequential([keras.Input((32, 32, 3)), *layers, *head], name="before")
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
x, y = np.random.default_rng(0).normal(size=(64, 32, 32, 3)).astype("float32"), np.arange(64) % 4

# Separable convolutions: fewer parameters, but not less memory in training. Half the filters: less of everything.
for smaller in (memfit.slim(model, separable=True), memfit.slim(model, width=0.5)):
    print(memfit.compare(model, smaller, batch_size=32, gpu="RTX 3060", jit=False), end="\n\n")

# Zeros: a smaller file.
pruning = memfit.compress.prune(model, 0.8)
model.fit(x, y, epochs=3, verbose=0, callbacks=[pruning])
print(pruning.report(), end="\n\n")

# Eight bits instead of thirty-two.
with tempfile.TemporaryDirectory() as folder:
    print(memfit.compress.quantize(model, Path(folder) / "model.tflite", calibration=x, data=(x, y)))
