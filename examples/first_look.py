"""A first look at a model: what training steps of growing batches take, under a real limit, with or without a GPU."""

import memfit

memfit.devices.configure(limit="1GiB")  # before anything else uses TensorFlow

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from memfit.units import format_size  # noqa: E402


def small_cnn() -> keras.Model:
    """Four convolution blocks on 96 x 96 images."""
    inputs = outputs = keras.Input((96, 96, 3))
    for filters in (32, 64, 128, 256):
        outputs = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(outputs)
        outputs = keras.layers.BatchNormalization()(outputs)
        outputs = keras.layers.ReLU()(outputs)
        outputs = keras.layers.MaxPooling2D()(outputs)
    outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(outputs))
    model = keras.Model(inputs, outputs)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


model = small_cnn()
print(f"\nA small CNN with {model.count_params():,} parameters, under a limit of 1 GiB:\n")
for batch_size in (8, 16, 32, 64, 128, 256):
    images = np.zeros((batch_size, 96, 96, 3), "float32")
    labels = np.zeros((batch_size,), "int32")
    memfit.devices.reset_peak()
    try:
        model.train_on_batch(images, labels)
    except tf.errors.ResourceExhaustedError as error:
        reason = next(line for line in error.message.splitlines() if "OOM when" in line)
        print(f"  batch {batch_size:>3}   {reason.partition(' on /job')[0]}")
        break
    print(f"  batch {batch_size:>3}   peak {format_size(memfit.devices.memory()[0].peak)}")
