"""Random combinations of layers, loss, optimizer, metric, data and technique: the same training, or a refusal."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras import layers, losses, metrics, ops, optimizers
from tests.integration.exactness.cases_layers import MeanInside, MixUp, State
from tests.integration.exactness.cases_training import LargestEver, contrastive, largest_error, largest_prediction
from tests.integration.exactness.cases_usage import Batches
from tests.integration.exactness.harness import TECHNIQUES, Case, outcome
from tests.integration.exactness.models import (
    BATCH,
    CLASSES,
    FEATURES,
    arrays,
    compiled,
    labels,
    normal,
    stack,
    weights,
)

LAYERS = {
    "dense": lambda: layers.Dense(6, activation="relu"),
    "regularized": lambda: layers.Dense(6, kernel_regularizer="l2", activity_regularizer="l2"),
    "dropout": lambda: layers.Dropout(0.3),
    "noise": lambda: layers.GaussianNoise(0.3),
    "layer normalization": lambda: layers.LayerNormalization(),
    "batch normalization": lambda: layers.BatchNormalization(momentum=0.9),
    "spectral normalization": lambda: layers.SpectralNormalization(layers.Dense(6)),
    "mixup": MixUp,
    "metric": MeanInside,
    "counter": lambda: State(lambda number, x: number + 1),
    "maximum": lambda: State(lambda number, x: ops.maximum(number, ops.max(x))),
    "nested": lambda: keras.Sequential([layers.Dense(6), layers.Dropout(0.2)]),
    "recurrent": lambda: keras.Sequential([layers.Reshape((3, 2)), layers.GRU(6, dropout=0.2)]),
}
LOSSES = {
    "mse": lambda: "mse",
    "crossentropy": lambda: losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
    "sum": lambda: losses.MeanAbsoluteError(reduction="sum"),
    "weighted mean": lambda: losses.Huber(reduction="mean_with_sample_weight"),
    "tversky": lambda: losses.Tversky(),
    "user function": lambda: largest_error,
    "user scalar": lambda: lambda y, p: ops.mean(ops.square(y - p)),
    "user pairs": lambda: lambda y, p: contrastive(ops.argmax(y, axis=-1), p),
}
OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: optimizers.Adam(0.01, epsilon=1e-3, global_clipnorm=0.5),
    "averaged": lambda: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.8),
    "accumulating": lambda: optimizers.SGD(0.05, gradient_accumulation_steps=2),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.05), initial_scale=64.0),
}
METRICS = {
    "none": lambda: None,
    "accuracy": lambda: ["accuracy"],
    "objects": lambda: [metrics.CategoricalAccuracy(), metrics.MeanAbsoluteError()],
    "user function": lambda: [largest_prediction],
    "user class": lambda: [LargestEver()],
}


def _dataset(x, y, weight):
    return {"x": tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(BATCH)}


DATA = {
    "arrays": lambda x, y, weight: arrays(x, y),
    "shuffled": lambda x, y, weight: arrays(x, y, shuffle=True),
    "weighted": lambda x, y, weight: arrays(x, y, sample_weight=weight),
    "dataset": _dataset,
    "py dataset": lambda x, y, weight: {"x": Batches(x, y, weight)},
    "validated": lambda x, y, weight: arrays(x, y, validation_data=(x[:5], y[:5])),
}
CERTAIN = {"dense", "dropout", "noise", "layer normalization", "nested"}
COMBINATIONS = st.fixed_dictionaries(
    {
        "layers": st.lists(st.sampled_from([*LAYERS]), min_size=1, max_size=3),
        "loss": st.sampled_from([*LOSSES]),
        "optimizer": st.sampled_from([*OPTIMIZERS]),
        "metric": st.sampled_from([*METRICS]),
        "data": st.sampled_from([*DATA]),
        "technique": st.sampled_from([name for name in TECHNIQUES if name != "fused_batch_norm"]),
    }
)


def _build(chosen):
    model = stack(FEATURES, *(LAYERS[name]() for name in chosen["layers"]))
    compiled(model, LOSSES[chosen["loss"]](), OPTIMIZERS[chosen["optimizer"]](), metrics=METRICS[chosen["metric"]]())
    y = np.eye(CLASSES)[labels()].astype(keras.config.floatx())
    return model, DATA[chosen["data"]](normal(*FEATURES), y, weights())


@pytest.mark.slow
@settings(max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(chosen=COMBINATIONS)
def test_random_combinations_are_equal_or_refused(chosen):
    name = ", ".join(f"{key}: {value}" for key, value in chosen.items() if key != "technique")
    keras_only = {*chosen["layers"]} <= CERTAIN and chosen["loss"] in ("mse", "crossentropy", "sum")
    expected = {chosen["technique"]: "equal"} if keras_only else {}
    case = Case(name, "combinations", lambda: _build(chosen), (chosen["technique"],), expected)
    outcome(case, chosen["technique"])
