"""An ordinary training script, with nothing of memfit in it: a U-Net that finds shapes in small pictures."""

import argparse
import math

import keras
import numpy as np
from keras import layers

SIZE = 96


def picture(number: int) -> tuple[np.ndarray, np.ndarray]:
    """A grey picture with noise and a few discs, and where the discs are."""
    random = np.random.default_rng(number)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    mask = np.zeros((SIZE, SIZE), bool)
    for _ in range(random.integers(1, 4)):
        row, column, radius = random.integers(8, SIZE - 8), random.integers(8, SIZE - 8), random.integers(4, 12)
        mask |= (rows - row) ** 2 + (columns - column) ** 2 < radius**2
    shown = 0.4 * mask + random.normal(0.3, 0.2, (SIZE, SIZE))
    return shown[..., None].astype("float32"), mask[..., None].astype("float32")


class Pictures(keras.utils.PyDataset):
    """Batches of pictures, each made when it is asked for."""

    def __init__(self, count: int, batch: int) -> None:
        super().__init__()
        self.count, self.batch = count, batch

    def __len__(self) -> int:
        return math.ceil(self.count / self.batch)

    def __getitem__(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = range(at * self.batch, min((at + 1) * self.batch, self.count))
        shown, masks = zip(*map(picture, numbers), strict=True)
        return np.stack(shown), np.stack(masks)


def convolved(features: keras.KerasTensor, filters: int) -> keras.KerasTensor:
    """Two convolutions, as U-Nets have them."""
    for _ in range(2):
        features = layers.Conv2D(filters, 3, padding="same", activation="relu")(features)
    return features


def unet(filters: int = 16, depth: int = 3) -> keras.Model:
    """A small U-Net."""
    inputs = features = keras.Input((SIZE, SIZE, 1))
    skipped = []
    for level in range(depth):
        features = convolved(features, filters * 2**level)
        skipped.append(features)
        features = layers.MaxPooling2D()(features)
    features = convolved(features, filters * 2**depth)
    for level in reversed(range(depth)):
        features = layers.Conv2DTranspose(filters * 2**level, 2, strides=2)(features)
        features = convolved(layers.Concatenate()([features, skipped[level]]), filters * 2**level)
    return keras.Model(inputs, layers.Conv2D(1, 1)(features), name="unet")


def main() -> None:
    """Train it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    given = parser.parse_args()

    keras.utils.set_random_seed(0)
    model = unet()
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=[keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")])
    model.fit(Pictures(given.pictures, given.batch), epochs=given.epochs, verbose=2)


if __name__ == "__main__":
    main()
