"""Layers: what they keep, what they draw, and what they mix."""

import keras
import tensorflow as tf
from keras import layers, ops
from tests.integration.exactness.models import (
    BATCH,
    CLASSES,
    FEATURES,
    SAMPLES,
    Cases,
    arrays,
    compiled,
    features,
    images,
    labels,
    normal,
    sequences,
    stack,
    tokens,
)

LAYERS = Cases("layers", "micro_batch remat")
STATE_AND_STRUCTURE = Cases("state and structure", "micro_batch remat")
BOTH = "micro_batch remat"


class OwnBatchNormalization(layers.BatchNormalization):
    """A user's subclass."""


class RandomInLayer(layers.Layer):
    """Draws without a seed of its own."""

    def call(self, inputs, training=False):
        return inputs * keras.random.normal(ops.shape(inputs), 1.0, dtype=inputs.dtype) if training else inputs


class CategoricalGate(layers.Layer):
    """Draws classes from probabilities that depend on the sample."""

    def build(self, shape):
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, inputs, training=False):
        if not training:
            return inputs
        drawn = keras.random.categorical(inputs, 1, dtype="int32", seed=self.seeds)
        return inputs * (1 + ops.cast(drawn, inputs.dtype))


class GammaNoise(layers.Layer):
    """Draws from a gamma distribution."""

    def build(self, shape):
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, inputs, training=False):
        if not training:
            return inputs
        return inputs * keras.random.gamma(ops.shape(inputs), alpha=2.0, dtype=inputs.dtype, seed=self.seeds)


class StatefulTensorFlowNoise(layers.Layer):
    """Draws with TensorFlow's stateful operation."""

    def call(self, inputs, training=False):
        return inputs * tf.random.normal(tf.shape(inputs), 1.0, dtype=inputs.dtype) if training else inputs


class DropoutOnTransposed(layers.Layer):
    """Dropout where the batch is the second dimension."""

    def build(self, shape):
        self.dropout = layers.Dropout(0.4, seed=3)

    def call(self, inputs, training=False):
        return ops.transpose(self.dropout(ops.transpose(inputs, (1, 0, 2)), training=training), (1, 0, 2))


class PositionEmbedding(layers.Layer):
    """Looks up the same rows for every sample."""

    def build(self, shape):
        self.table = layers.Embedding(shape[1], shape[2])
        self.table.build(())

    def call(self, inputs):
        return inputs + self.table(ops.arange(inputs.shape[1]))


class MixUp(layers.Layer):
    """Mixes each sample with another of the batch."""

    def call(self, inputs, training=False):
        return 0.7 * inputs + 0.3 * ops.flip(inputs, 0) if training else inputs


class MeanInside(layers.Layer):
    """Has a metric of its own."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="inside")

    def call(self, inputs):
        self.mean.update_state(ops.mean(ops.square(inputs), axis=-1))
        return inputs


class State(layers.Layer):
    """Keeps one number and assigns it on every call."""

    def __init__(self, update, initial="zeros", used=False, **settings):
        super().__init__(**settings)
        self.update, self.initial, self.used = update, initial, used

    def build(self, shape):
        self.number = self.add_weight(shape=(), initializer=self.initial, trainable=False, name="number")

    def call(self, inputs):
        self.number.assign(self.update(self.number.value, inputs))
        return inputs * (1 + 0.01 * self.number) if self.used else inputs


class AddLoss(layers.Layer):
    """Adds a loss of its inputs."""

    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def call(self, inputs):
        self.add_loss(0.1 * self.reduce(ops.square(inputs)))
        return inputs


@LAYERS.case(
    "micro_batch remat micro_batch+remat recover recover+micro_batch",
    equal="micro_batch remat recover",
    quick="micro_batch",
)
def dense():
    return features(layers.Dense(8, activation="relu"))


@LAYERS.case(
    "micro_batch remat micro_batch+remat recover",
    equal="micro_batch remat micro_batch+remat recover",
    quick="micro_batch+remat",
)
def convolutions():
    return images(layers.ReLU(), layers.Conv2D(4, 3, padding="same"), layers.MaxPooling2D())


@LAYERS.case("micro_batch remat recover recover+remat", equal="remat recover", quick="micro_batch")
def batch_normalization():
    return images(layers.BatchNormalization(momentum=0.9), layers.ReLU())


@LAYERS.case("fused_batch_norm", equal="fused_batch_norm", quick="fused_batch_norm", dtype="float32")
def batch_normalization_float32():
    return images(layers.BatchNormalization(momentum=0.9), layers.ReLU())


@LAYERS.case("micro_batch")
def batch_normalization_of_vectors():
    return features(layers.BatchNormalization(momentum=0.9))


@LAYERS.case("micro_batch remat", equal="remat")
def batch_normalization_subclass():
    return images(OwnBatchNormalization(momentum=0.9), layers.ReLU())


@LAYERS.case("fused_batch_norm", dtype="float32")
def batch_normalization_subclass_float32():
    return images(OwnBatchNormalization(momentum=0.9), layers.ReLU())


@LAYERS.case(equal=BOTH)
def batch_normalization_frozen():
    return images(layers.BatchNormalization(trainable=False), layers.ReLU())


@LAYERS.case("micro_batch remat", equal="remat")
def batch_normalization_after_masking():
    model = stack((5,), layers.Embedding(9, 4, mask_zero=True), layers.BatchNormalization(), dtype="int32")
    return compiled(model), arrays(tokens(), labels())


@LAYERS.case("micro_batch", equal="micro_batch")
def layer_normalization():
    return features(layers.LayerNormalization())


@LAYERS.case("micro_batch", equal="micro_batch")
def group_normalization():
    return images(layers.GroupNormalization(2))


@LAYERS.case("micro_batch")
def unit_normalization_of_columns():
    return features(layers.UnitNormalization(axis=0))


@LAYERS.case(
    "micro_batch remat micro_batch+remat recover",
    equal="micro_batch remat micro_batch+remat recover",
    quick="micro_batch",
)
def dropout():
    return features(layers.Dropout(0.4))


@LAYERS.case("micro_batch", equal="micro_batch", dtype="float32")
def dropout_float32():
    return features(layers.Dense(8), layers.Dropout(0.4))


@LAYERS.case("micro_batch", dtype="float32")
def dropout_of_odd_rows_float32():
    return features(layers.Dense(5), layers.Dropout(0.4))


@LAYERS.case("micro_batch", equal="micro_batch")
def dropout_with_noise_shape():
    return sequences(layers.Dropout(0.4, noise_shape=(1, 5, 4)))


@LAYERS.case()
def dropout_of_transposed_batch():
    return sequences(DropoutOnTransposed())


@LAYERS.case(equal=BOTH)
def dropout_used_twice():
    shared = layers.Dropout(0.4)
    return features(shared, layers.Dense(6), shared)


@LAYERS.case("micro_batch", equal="micro_batch")
def spatial_dropout():
    return images(layers.SpatialDropout2D(0.4))


@LAYERS.case("micro_batch", equal="micro_batch")
def gaussian_noise():
    return features(layers.GaussianNoise(0.3))


@LAYERS.case("micro_batch")
def gaussian_dropout():
    return features(layers.GaussianDropout(0.3))


@LAYERS.case("micro_batch")
def alpha_dropout():
    return features(layers.AlphaDropout(0.3))


@LAYERS.case("micro_batch remat recover")
def random_in_lambda():
    return features(layers.Lambda(lambda x: x * keras.random.normal(ops.shape(x), 1.0, dtype=x.dtype)))


@LAYERS.case("micro_batch remat recover")
def random_in_layer():
    return features(RandomInLayer())


@LAYERS.case("micro_batch")
def random_with_constant_seed():
    return features(layers.Lambda(lambda x: x * keras.random.normal(ops.shape(x), 1.0, dtype=x.dtype, seed=5)))


@LAYERS.case("micro_batch")
def random_of_static_shape():
    return features(layers.Lambda(lambda x: x * keras.random.normal((6,), 1.0, dtype=x.dtype, seed=5)))


@LAYERS.case("micro_batch")
def random_categorical():
    return features(CategoricalGate())


@LAYERS.case("micro_batch")
def random_gamma():
    return features(GammaNoise())


@LAYERS.case("micro_batch remat recover", refused="micro_batch")
def random_stateful_tensorflow():
    return features(StatefulTensorFlowNoise())


@LAYERS.case(equal=BOTH)
def embedding():
    model = stack((5,), layers.Embedding(9, 4), dtype="int32")
    return compiled(model, optimizer=keras.optimizers.Adam(0.01, epsilon=1e-3)), arrays(tokens(), labels())


@LAYERS.case("micro_batch remat")
def embedding_of_positions():
    return sequences(PositionEmbedding())


@LAYERS.case("micro_batch remat")
def embedding_shared():
    inputs = keras.Input((5,), dtype="int32")
    table = layers.Embedding(9, 4)
    first, second = table(inputs), table(layers.Lambda(lambda x: ops.flip(x, 1))(inputs))
    tensor = layers.Flatten()(layers.Multiply()([layers.Dense(4)(first), second]))
    return compiled(keras.Model(inputs, layers.Dense(CLASSES)(tensor))), arrays(tokens(), labels())


@LAYERS.case("micro_batch")
def embedding_tied_to_output():
    class Tied(layers.Layer):
        def build(self, shape):
            self.table = layers.Embedding(9, 4)
            self.table.build(())

        def call(self, inputs):
            return ops.matmul(ops.tanh(self.table(inputs)), ops.transpose(self.table.embeddings))

    model = stack((5,), Tied(), dtype="int32")
    return compiled(model), arrays(tokens(), labels())


@LAYERS.case("micro_batch remat micro_batch+remat", equal="micro_batch remat")
def attention():
    inputs = keras.Input((5,), dtype="int32")
    tensor = layers.Embedding(9, 4, mask_zero=True)(inputs)
    attended = layers.MultiHeadAttention(2, 2, dropout=0.2, use_bias=False)(tensor, tensor, use_causal_mask=True)
    tensor = layers.LayerNormalization()(layers.Add()([tensor, attended]))
    tensor = layers.GlobalAveragePooling1D()(layers.Dense(6, activation="gelu")(tensor))
    return compiled(keras.Model(inputs, layers.Dense(CLASSES)(tensor))), arrays(tokens(), labels())


@LAYERS.case("micro_batch", equal="micro_batch")
def lstm():
    return sequences(layers.LSTM(4, return_sequences=True), layers.LSTM(4))


@LAYERS.case()
def gru_with_dropout():
    return sequences(layers.GRU(4, dropout=0.2, recurrent_dropout=0.2), layers.Dense(64))


@LAYERS.case("micro_batch remat recover")
def lstm_stateful():
    inputs = keras.Input(batch_shape=(BATCH, 5, 3))
    tensor = layers.Dense(64)(layers.LSTM(4, stateful=True)(layers.Dense(4)(inputs)))
    model = compiled(keras.Model(inputs, layers.Dense(CLASSES)(tensor)))
    even = SAMPLES // BATCH * BATCH
    return model, arrays(normal(5, 3)[:even], labels()[:even])


@LAYERS.case(equal=BOTH)
def bidirectional_with_masking():
    embedding, recurrent = layers.Embedding(9, 4, mask_zero=True), layers.Bidirectional(layers.LSTM(3))
    model = stack((5,), embedding, recurrent, layers.Dense(64), dtype="int32")
    return compiled(model), arrays(tokens(), labels())


@LAYERS.case("micro_batch")
def convolutional_lstm():
    inputs = keras.Input((2, 4, 4, 1))
    tensor = layers.Flatten()(layers.ConvLSTM2D(2, 3, padding="same")(inputs))
    return compiled(keras.Model(inputs, layers.Dense(CLASSES)(tensor))), arrays(normal(2, 4, 4, 1), labels())


@LAYERS.case("micro_batch", equal="micro_batch")
def time_distributed():
    return sequences(layers.TimeDistributed(layers.Dense(3, activation="relu")), layers.Dense(16))


@STATE_AND_STRUCTURE.case("micro_batch remat micro_batch+remat")
def spectral_normalization():
    return features(layers.SpectralNormalization(layers.Dense(6)))


@STATE_AND_STRUCTURE.case("micro_batch", refused="micro_batch")
def lambda_over_batch():
    return features(layers.Lambda(lambda x: x - ops.mean(x, axis=0, keepdims=True)))


@STATE_AND_STRUCTURE.case(refused="micro_batch", equal="remat", quick="micro_batch")
def mixup():
    return features(MixUp())


@STATE_AND_STRUCTURE.case("micro_batch remat recover", quick="micro_batch")
def metric_in_layer():
    return features(MeanInside())


@STATE_AND_STRUCTURE.case("micro_batch remat recover")
def state_counter():
    return features(State(lambda number, x: number + 1))


@STATE_AND_STRUCTURE.case("micro_batch")
def state_integer_counter():
    class Counter(layers.Layer):
        def build(self, shape):
            self.number = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

        def call(self, inputs):
            self.number.assign_add(ops.ones((), "int32"))
            return inputs

    return features(Counter())


@STATE_AND_STRUCTURE.case("micro_batch")
def state_maximum():
    return features(State(lambda number, x: ops.maximum(number, ops.max(x))))


@STATE_AND_STRUCTURE.case("micro_batch")
def state_sum():
    return features(State(lambda number, x: number + ops.sum(x)))


@STATE_AND_STRUCTURE.case("micro_batch")
def state_moving_mean():
    return features(State(lambda number, x: 0.9 * number + 0.1 * ops.mean(x)))


@STATE_AND_STRUCTURE.case("micro_batch remat recover")
def state_read_after_assign():
    return features(State(lambda number, x: number + 1, used=True))


@STATE_AND_STRUCTURE.case("micro_batch remat")
def state_of_batch_read_after_assign():
    return features(State(lambda number, x: ops.mean(x), used=True))


@STATE_AND_STRUCTURE.case("micro_batch remat recover")
def lambda_with_captured_variable():
    outside = keras.Variable(2.0, trainable=False, name="outside")

    def count(x):
        outside.assign_add(0.5)
        return x * outside

    model, arguments = features(layers.Lambda(count))
    return model, arguments, lambda: {"outside": float(outside.numpy())}


@STATE_AND_STRUCTURE.case("micro_batch remat", equal="micro_batch remat")
def nested_functional():
    inputs = keras.Input((4, 4, 4))
    block = keras.Model(inputs, layers.Add()([inputs, layers.Conv2D(4, 3, padding="same")(inputs)]))
    return images(block, block)


@STATE_AND_STRUCTURE.case(equal=BOTH)
def nested_sequential():
    return images(keras.Sequential([layers.Conv2D(3, 3), layers.Dropout(0.3)]), layers.Conv2D(24, 1))


@STATE_AND_STRUCTURE.case()
def nested_with_batch_normalization():
    inner = [layers.Conv2D(3, 3, use_bias=False), layers.BatchNormalization(momentum=0.9)]
    return images(keras.Sequential(inner), layers.Conv2D(24, 1))


@STATE_AND_STRUCTURE.case()
def nested_with_dict_inputs():
    first, second = keras.Input((6,), name="first"), keras.Input((6,), name="second")
    inner = keras.Model(
        {"first": first, "second": second}, {"sum": layers.Dense(6)(first) + layers.Dropout(0.3)(second)}
    )
    inputs = keras.Input(FEATURES)
    tensor = layers.Dense(6)(inputs)
    tensor = layers.Dense(6, activation="tanh")(inner({"first": tensor, "second": inputs})["sum"])
    return compiled(keras.Model(inputs, layers.Dense(CLASSES)(tensor))), arrays(normal(*FEATURES), labels())


@STATE_AND_STRUCTURE.case("micro_batch remat")
def reshape_with_fixed_batch():
    model = stack(FEATURES, layers.Dense(6), layers.Lambda(lambda x: ops.reshape(x, (BATCH, -1)), output_shape=(6,)))
    even = SAMPLES // BATCH * BATCH
    return compiled(model), arrays(normal(*FEATURES)[:even], labels()[:even])


@STATE_AND_STRUCTURE.case("micro_batch", refused="micro_batch")
def reshape_that_pairs_samples():
    def pair(x):
        return ops.reshape(ops.flip(ops.reshape(x, (-1, 2, 6)), 1), (-1, 6))

    return features(layers.Lambda(pair, output_shape=(6,)))


@STATE_AND_STRUCTURE.case("micro_batch remat", equal="micro_batch remat")
def activity_regularizer():
    return features(layers.Dense(6, activity_regularizer=keras.regularizers.L2(0.1)))


@STATE_AND_STRUCTURE.case(equal=BOTH)
def kernel_regularizer():
    return features(layers.Dense(6, kernel_regularizer=keras.regularizers.L1L2(0.05, 0.1)))


@STATE_AND_STRUCTURE.case("micro_batch")
def kernel_constraint():
    return features(layers.Dense(6, kernel_constraint=keras.constraints.MaxNorm(0.7)))


@STATE_AND_STRUCTURE.case("micro_batch remat recover")
def added_mean_loss():
    return features(AddLoss(ops.mean))


@STATE_AND_STRUCTURE.case("micro_batch remat")
def added_sum_loss():
    return features(AddLoss(ops.sum))


@STATE_AND_STRUCTURE.case("micro_batch", refused="micro_batch")
def added_variance_loss():
    return features(AddLoss(lambda x: ops.mean(ops.var(x, axis=0))))


@STATE_AND_STRUCTURE.case("micro_batch", dtype="float32")
def random_flip():
    model = stack((6, 6, 2), layers.RandomFlip(seed=1), layers.Conv2D(4, 3))
    return compiled(model), arrays(normal(6, 6, 2), labels())


@STATE_AND_STRUCTURE.case(dtype="float32")
def random_rotation_and_zoom():
    model = stack((6, 6, 2), layers.RandomRotation(0.2, seed=1), layers.RandomZoom(0.2, seed=2), layers.Conv2D(4, 3))
    return compiled(model), arrays(normal(6, 6, 2), labels())


@STATE_AND_STRUCTURE.case("micro_batch", dtype="float32")
def random_contrast_and_translation():
    model = stack(
        (6, 6, 2), layers.RandomContrast(0.3, seed=1), layers.RandomTranslation(0.2, 0.2, seed=2), layers.Conv2D(4, 3)
    )
    return compiled(model), arrays(normal(6, 6, 2), labels())


@STATE_AND_STRUCTURE.case("micro_batch", equal="micro_batch")
def rescaling_and_normalization():
    normalization = layers.Normalization()
    normalization.adapt(normal(*FEATURES))
    model = stack(FEATURES, layers.Rescaling(0.5), normalization, layers.Dense(6))
    return compiled(model), arrays(normal(*FEATURES), labels())


@STATE_AND_STRUCTURE.case("micro_batch")
def discretization():
    model = stack(FEATURES, layers.Discretization([-1.0, 0.0, 1.0]), layers.Embedding(4, 3))
    return compiled(model), arrays(normal(*FEATURES), labels())


@STATE_AND_STRUCTURE.case(equal=BOTH)
def shared_weights():
    shared = layers.Dense(6, activation="tanh")
    return features(shared, layers.Dropout(0.2), shared)


@STATE_AND_STRUCTURE.case(equal=BOTH)
def frozen_layers():
    return features(layers.Dense(6, trainable=False), layers.Dropout(0.2))
