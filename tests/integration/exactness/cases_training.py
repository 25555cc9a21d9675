"""Losses, optimizers and metrics."""

import keras
import numpy as np
from keras import layers, losses, ops, optimizers
from tests.integration.exactness.models import (
    CLASSES,
    FEATURES,
    SAMPLES,
    Cases,
    arrays,
    compiled,
    labels,
    mlp,
    normal,
    stack,
    tokens,
    weights,
)

# Recovery does not look into losses: a few show it.
LOSSES = Cases("losses", "micro_batch")
OPTIMIZERS = Cases("optimizers", "micro_batch recover")
METRICS = Cases("metrics", "micro_batch recover")


def numbers():
    return normal(2)


def one_hot():
    return np.eye(CLASSES)[labels()].astype(keras.config.floatx())


def bits():
    return labels(2, classes=2)


def with_loss(make, targets, *, outputs=None, activation=None, sample_weight=False):
    """A case builder: an MLP with a loss."""

    def build():
        y = targets()
        width = outputs or (y.shape[-1] if y.ndim > 1 else CLASSES)
        model = compiled(mlp(width, activation), make())
        return model, arrays(normal(*FEATURES), y, **({"sample_weight": weights()} if sample_weight else {}))

    return build


def largest_error(y_true, y_pred):
    return ops.max(ops.abs(y_true - y_pred), axis=-1)


def scalar_error(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred))


def scalar_root(y_true, y_pred):
    return ops.sqrt(ops.mean(ops.square(y_true - y_pred)))


def contrastive(y_true, y_pred):
    """Pulls samples of one class together: every pair of the batch counts."""
    same = ops.cast(ops.equal(ops.reshape(y_true, (-1, 1)), ops.reshape(y_true, (1, -1))), y_pred.dtype)
    distance = ops.mean(ops.square(ops.expand_dims(y_pred, 0) - ops.expand_dims(y_pred, 1)), axis=-1)
    return ops.mean(same * distance + (1 - same) * ops.relu(1 - distance), axis=-1)


class OwnLoss(losses.Loss):
    """A user's loss with one value per sample."""

    def call(self, y_true, y_pred):
        return ops.mean(ops.abs(y_true - y_pred) ** 1.5, axis=-1)


class OwnScalarLoss(losses.Loss):
    """A user's loss that returns one number."""

    def call(self, y_true, y_pred):
        return ops.logsumexp(ops.square(y_true - y_pred))


LOSSES.add("mse", with_loss(lambda: "mse", numbers), "micro_batch recover", equal="micro_batch recover")
LOSSES.add("mse_weighted", with_loss(lambda: "mse", numbers, sample_weight=True), equal="micro_batch")
LOSSES.add(
    "sparse_crossentropy",
    with_loss(lambda: "sparse_categorical_crossentropy", labels, activation="softmax"),
    "micro_batch micro_batch+remat",
    equal="micro_batch",
)
LOSSES.add(
    "crossentropy_smoothed",
    with_loss(lambda: losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), one_hot),
    equal="micro_batch",
)
LOSSES.add("dice", with_loss(losses.Dice, bits, activation="sigmoid"), "micro_batch recover", quick="micro_batch")
LOSSES.add(
    "tversky",
    with_loss(lambda: losses.Tversky(alpha=0.3, beta=0.7), bits, activation="sigmoid"),
)
LOSSES.add(
    "circle",
    with_loss(lambda: losses.Circle(), labels, outputs=4, activation=layers.UnitNormalization()),
)
LOSSES.add(
    "categorical_focal",
    with_loss(lambda: losses.CategoricalFocalCrossentropy(from_logits=True), one_hot),
    "micro_batch",
    equal="micro_batch",
)
LOSSES.add("huber", with_loss(losses.Huber, numbers), "micro_batch", equal="micro_batch")
LOSSES.add(
    "cosine_over_batch",
    with_loss(lambda: losses.CosineSimilarity(axis=0), numbers),
    "micro_batch",
)
LOSSES.add("user_function", with_loss(lambda: largest_error, numbers), "micro_batch recover")
LOSSES.add("user_scalar", with_loss(lambda: scalar_error, numbers))
LOSSES.add("user_scalar_root", with_loss(lambda: scalar_root, numbers))
LOSSES.add("user_scalar_weighted", with_loss(lambda: scalar_error, numbers, sample_weight=True))
LOSSES.add("user_contrastive", with_loss(lambda: contrastive, labels), "micro_batch recover", equal="recover")
LOSSES.add("user_class", with_loss(OwnLoss, numbers, sample_weight=True))
LOSSES.add("user_scalar_class", with_loss(OwnScalarLoss, numbers))
LOSSES.add("reduction_sum", with_loss(lambda: losses.MeanSquaredError(reduction="sum"), numbers), equal="micro_batch")
LOSSES.add("reduction_mean", with_loss(lambda: losses.MeanSquaredError(reduction="mean"), numbers, sample_weight=True))
LOSSES.add(
    "reduction_by_weights",
    with_loss(lambda: losses.MeanSquaredError(reduction="mean_with_sample_weight"), numbers, sample_weight=True),
)


def _two_outputs():
    inputs = keras.Input(FEATURES)
    tensor = layers.Dense(8, activation="tanh")(inputs)
    tensor = layers.Dropout(0.2)(tensor)
    return inputs, layers.Dense(CLASSES, name="kind")(tensor), layers.Dense(2, name="size")(tensor)


@LOSSES.case("micro_batch remat micro_batch+remat recover", equal="micro_batch recover")
def several_outputs():
    inputs, kind, size = _two_outputs()
    model = keras.Model(inputs, [kind, size])
    entropy = losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled(model, [entropy, "mse"], loss_weights=[1.0, 0.3], metrics=[["accuracy"], ["mae"]])
    return model, arrays(normal(*FEATURES), [labels(), numbers()])


@LOSSES.case("micro_batch micro_batch+remat recover", equal="micro_batch recover")
def several_outputs_in_dict():
    inputs, kind, size = _two_outputs()
    model = keras.Model(inputs, {"kind": kind, "size": size})
    entropy = losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled(
        model,
        {"kind": entropy, "size": losses.MeanSquaredError(reduction="sum")},
        loss_weights={"kind": 1.0, "size": 0.3},
    )
    return model, arrays(normal(*FEATURES), {"kind": labels(), "size": numbers()})


@LOSSES.case("micro_batch recover")
def one_output_without_loss():
    inputs, kind, size = _two_outputs()
    model = keras.Model(inputs, {"kind": kind, "size": size})
    compiled(model, {"kind": losses.SparseCategoricalCrossentropy(from_logits=True)})
    return model, arrays(normal(*FEATURES), {"kind": labels()})


@LOSSES.case("micro_batch remat recover")
def only_added_loss():
    class Reconstruction(layers.Layer):
        def call(self, inputs, outputs):
            self.add_loss(ops.mean(ops.square(inputs - outputs)))
            return outputs

    inputs = keras.Input(FEATURES)
    outputs = layers.Dense(6)(layers.Dropout(0.2)(layers.Dense(4, activation="tanh")(inputs)))
    model = keras.Model(inputs, Reconstruction()(inputs, outputs))
    return compiled(model, None), arrays(normal(*FEATURES))


@LOSSES.case("micro_batch remat micro_batch+remat recover", equal="micro_batch remat recover")
def masked_sequences():
    inputs = keras.Input((5,), dtype="int32")
    tensor = layers.Embedding(9, 4, mask_zero=True)(inputs)
    tensor = layers.Dense(6, activation="tanh")(layers.Dropout(0.2)(tensor))
    return compiled(keras.Model(inputs, layers.Dense(CLASSES)(tensor))), arrays(tokens(), labels(5))


@LOSSES.case("micro_batch", equal="micro_batch")
def masked_and_weighted_sequences():
    model, arguments = masked_sequences()
    return model, {**arguments, "sample_weight": np.abs(normal(5))}


@LOSSES.case("micro_batch recover")
def connectionist_temporal():
    model = keras.Sequential([keras.Input((6, 3)), layers.Dense(8, activation="tanh"), layers.Dense(5)])
    return compiled(model, losses.CTC()), arrays(normal(6, 3), labels(2, classes=4) + 1)


def with_optimizer(make, **settings):
    """A case builder: an MLP with an optimizer."""

    def build():
        model = compiled(mlp(), optimizer=make(), **settings)
        return model, arrays(normal(*FEATURES), labels())

    return build


# With its default epsilon Adam makes visible digits of the rounding of gradients that are nearly 0.
ADAPTIVE = {"learning_rate": 0.01, "epsilon": 1e-3}
for name, make in {
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(**ADAPTIVE),
    "adamw": lambda: optimizers.AdamW(**ADAPTIVE, weight_decay=0.1),
    "rmsprop": lambda: optimizers.RMSprop(**ADAPTIVE, momentum=0.5, centered=True),
    "adagrad": lambda: optimizers.Adagrad(**ADAPTIVE),
    "adafactor": lambda: optimizers.Adafactor(0.01),
    "lion": lambda: optimizers.Lion(0.01),
    "ftrl": lambda: optimizers.Ftrl(0.05, l1_regularization_strength=0.001),
    "loss_scale": lambda: optimizers.LossScaleOptimizer(
        optimizers.SGD(0.1), initial_scale=64.0, dynamic_growth_steps=2
    ),
    "global_clipnorm": lambda: optimizers.SGD(0.1, global_clipnorm=0.1),
    "clipnorm": lambda: optimizers.SGD(0.1, clipnorm=0.05),
    "moving_average": lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2),
    "gradient_accumulation": lambda: optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "schedule": lambda: optimizers.Adam(optimizers.schedules.CosineDecay(0.02, 6, warmup_steps=2), epsilon=1e-3),
}.items():
    only = {"adam": "micro_batch micro_batch+remat recover recover+micro_batch recover+remat"}.get(name)
    OPTIMIZERS.add(
        name, with_optimizer(make), only, equal="micro_batch recover", quick="recover" if name == "adam" else ""
    )


@OPTIMIZERS.case()
def user_optimizer():
    class SignDescent(optimizers.Optimizer):
        def build(self, variables):
            super().build(variables)
            self.steps = [self.add_variable_from_reference(each, "steps") for each in variables]

        def update_step(self, gradient, variable, learning_rate):
            taken = self.steps[self._get_variable_index(variable)]
            self.assign_add(taken, ops.abs(gradient))
            self.assign_sub(variable, learning_rate * ops.tanh(50 * gradient) / (1 + taken))

    return with_optimizer(lambda: SignDescent(0.05))()


@OPTIMIZERS.case()
def sparse_gradients_with_clipping():
    model = stack((5,), layers.Embedding(9, 4), dtype="int32")
    optimizer = optimizers.AdamW(**ADAPTIVE, weight_decay=0.1, global_clipnorm=0.3)
    return compiled(model, optimizer=optimizer), arrays(tokens(), labels())


def with_metrics(make, *, loss="sparse_categorical_crossentropy", activation="softmax", targets=labels, **settings):
    """A case builder: an MLP with metrics."""

    def build():
        y = targets()
        model = mlp(y.shape[-1] if y.ndim > 1 else CLASSES, activation)
        compiled(model, loss, metrics=make(), **{key: value() for key, value in settings.items()})
        return model, arrays(
            normal(*FEATURES), y, sample_weight=weights(), validation_data=(normal(*FEATURES)[:5], y[:5])
        )

    return build


def largest_prediction(y_true, y_pred):
    """Not a mean over samples: slices would give another number."""
    return ops.max(y_pred)


def entropy_of_mean(y_true, y_pred):
    mean = ops.mean(y_pred, axis=0)
    return -ops.sum(mean * ops.log(mean))


class LargestEver(keras.metrics.Metric):
    """A user's metric with state that is not a sum."""

    def __init__(self, name="largest_ever"):
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")
        self.updates = self.add_variable((), "zeros", name="updates")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign(ops.maximum(self.largest, ops.max(y_pred)))
        self.updates.assign(self.updates + 1)

    def result(self):
        return self.largest + self.updates


METRICS.add(
    "named",
    with_metrics(lambda: ["accuracy", "sparse_top_k_categorical_accuracy"]),
    equal="micro_batch recover",
    dtype="float32",  # TensorFlow has no top-k of float64
)
METRICS.add("objects", with_metrics(lambda: [keras.metrics.SparseCategoricalAccuracy()]), equal="micro_batch recover")
METRICS.add("functions", with_metrics(lambda: [keras.metrics.sparse_categorical_accuracy]))
METRICS.add(
    "threshold_metrics",
    with_metrics(
        lambda: [
            keras.metrics.AUC(num_thresholds=20),
            keras.metrics.Precision(),
            keras.metrics.Recall(),
            keras.metrics.BinaryIoU(),
        ],
        loss="binary_crossentropy",
        activation="sigmoid",
        targets=bits,
    ),
    "micro_batch micro_batch+remat recover",
    quick="recover",
)
METRICS.add(
    "confusion_metrics",
    with_metrics(
        lambda: [keras.metrics.OneHotMeanIoU(CLASSES), keras.metrics.F1Score(), keras.metrics.CategoricalAccuracy()],
        loss="categorical_crossentropy",
        targets=one_hot,
    ),
)
METRICS.add(
    "regression_metrics",
    with_metrics(
        lambda: [
            "mae",
            keras.metrics.RootMeanSquaredError(),
            keras.metrics.R2Score(),
            keras.metrics.PearsonCorrelation(),
        ],
        loss="mse",
        activation=None,
        targets=numbers,
    ),
)
METRICS.add(
    "user_metric_function",
    with_metrics(lambda: [largest_prediction, entropy_of_mean]),
    "micro_batch recover recover+micro_batch",
)
METRICS.add("user_metric_class", with_metrics(lambda: [LargestEver()]))
METRICS.add(
    "wrapped_user_function", with_metrics(lambda: [keras.metrics.MeanMetricWrapper(largest_prediction, name="own")])
)
METRICS.add(
    "weighted_metrics",
    with_metrics(
        lambda: ["accuracy"], weighted_metrics=lambda: ["accuracy", keras.metrics.SparseCategoricalCrossentropy()]
    ),
    equal="micro_batch recover",
)


@METRICS.case("micro_batch recover")
def metrics_by_output():
    inputs, kind, size = _two_outputs()
    model = keras.Model(inputs, {"kind": kind, "size": size})
    entropy = losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled(
        model,
        {"kind": entropy, "size": "mse"},
        metrics={"kind": ["accuracy"], "size": ["mae", keras.metrics.MeanSquaredError()]},
    )
    y = {"kind": labels(), "size": numbers()}
    return model, arrays(normal(*FEATURES), y, sample_weight={"kind": weights(), "size": np.ones(SAMPLES)})


@METRICS.case("micro_batch recover")
def metrics_of_regularized_model():
    """A metric on a regularized model: the loss that is shown includes the penalty."""
    model = stack(FEATURES, layers.Dense(6, kernel_regularizer="l2", activity_regularizer="l2"))
    return compiled(model, weighted_metrics=["accuracy"]), arrays(
        normal(*FEATURES), labels(), class_weight={0: 1.0, 1: 0.5, 2: 2.0}
    )
