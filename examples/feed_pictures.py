"""Train on a folder of pictures: on the CPU whatever need not be on the device, within a budget of host memory."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import memfit

PHOTOS = Path("example-photos")

# Pictures to train on: bright or dark on one side, in a folder for each class.
random = np.random.default_rng(0)
for index in range(80):
    name = ("left", "right")[index % 2]
    light = np.linspace(220, 30, 160) if name == "left" else np.linspace(30, 220, 160)
    pixels = np.clip(light[None, :, None] + random.normal(0, 20, (120, 160, 3)), 0, 255).astype("uint8")
    path = PHOTOS / name / f"{index:03d}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tf.io.encode_jpeg(pixels).numpy())


def brighter(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """One uint8 picture; the seed depends on the sample and the epoch."""
    return tf.image.stateless_random_brightness(image, 0.1, seed)


train, validation = memfit.data.image_folder(
    PHOTOS, image_size=64, batch_size=16, validation_split=0.2, ram_budget="512MiB", augment=brighter, seed=0
)
memfit.data.explain(train)

model = keras.Sequential(
    [
        keras.Input((64, 64, 3), dtype="uint8"),
        keras.layers.Rescaling(1 / 255),  # the cast to floats happens here, on the device
        keras.layers.Conv2D(8, 3, strides=4, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(train, validation_data=validation, epochs=3, verbose=0)
print(f"\naccuracy on held-out pictures after {len(history.epoch)} epochs: {history.history['val_accuracy'][-1]:.0%}")
