"""How people train: forms of data, classes of models, callbacks, seeds, precision."""

import atexit
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers, losses, ops
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
    mlp,
    normal,
    stack,
    tokens,
    weights,
)

DATA = Cases("data", "micro_batch recover")
CLASSES_OF_MODELS = Cases("model classes", "micro_batch remat recover")
CALLBACKS = Cases("callbacks", "micro_batch recover")
SETTINGS = Cases("seeds and settings", "micro_batch remat recover")
STANDARD = "micro_batch recover"


def classifier(**settings):
    return compiled(mlp(), **settings)


def batches(*arrays_):
    return [tuple(each[start : start + BATCH] for each in arrays_) for start in range(0, SAMPLES, BATCH)]


class Batches(keras.utils.PyDataset):
    """Batches of arrays."""

    def __init__(self, *arrays_):
        super().__init__()
        self.batches = batches(*arrays_)

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


@DATA.case(equal=STANDARD)
def shuffled_arrays():
    return classifier(), {**arrays(normal(*FEATURES), labels()), "shuffle": True}


@DATA.case("micro_batch+remat recover", equal="micro_batch+remat recover")
def dataset():
    return classifier(), {"x": tf.data.Dataset.from_tensor_slices((normal(*FEATURES), labels())).batch(BATCH)}


@DATA.case()
def dataset_shuffled_and_augmented():
    data = tf.data.Dataset.from_tensor_slices((normal(*FEATURES), labels())).shuffle(SAMPLES)
    data = data.map(lambda x, y: (x + tf.random.normal((6,), dtype=x.dtype), y)).batch(BATCH).prefetch(1)
    return classifier(), {"x": data}


@DATA.case(equal=STANDARD)
def dataset_with_fixed_batch():
    data = tf.data.Dataset.from_tensor_slices((normal(*FEATURES), labels())).batch(BATCH, drop_remainder=True)
    return classifier(), {"x": data}


@DATA.case(f"{STANDARD} remat recover+micro_batch", equal=f"{STANDARD} remat recover+micro_batch")
def dataset_of_unknown_length():
    data = tf.data.Dataset.from_tensor_slices((normal(*FEATURES), labels()))
    return classifier(), {"x": data.filter(lambda x, y: y >= 0).batch(BATCH)}


@DATA.case(equal=STANDARD, quick="recover")
def python_generator():
    def forever():
        while True:
            yield from batches(normal(*FEATURES), labels())

    return classifier(), {"x": forever(), "steps_per_epoch": 3}


@DATA.case(equal=STANDARD)
def py_dataset():
    return classifier(), {"x": Batches(normal(*FEATURES), labels())}


@DATA.case("recover recover+micro_batch")
def py_dataset_with_changing_order():
    class Shuffled(Batches):
        def on_epoch_end(self):
            self.batches = self.batches[1:] + self.batches[:1]

    return classifier(), {"x": Shuffled(normal(*FEATURES), labels())}


def two_inputs(structure):
    first, second = keras.Input((6,), name="first"), keras.Input((4,), name="second")
    tensor = layers.Concatenate()([layers.Dense(6, activation="tanh")(first), layers.Dropout(0.2)(second)])
    return compiled(keras.Model(structure(first, second), layers.Dense(CLASSES)(layers.Dense(6)(tensor))))


@DATA.case(equal=STANDARD)
def dict_inputs():
    model = two_inputs(lambda first, second: {"first": first, "second": second})
    return model, arrays({"first": normal(6), "second": normal(4)}, labels())


@DATA.case()
def nested_inputs():
    model = two_inputs(lambda first, second: {"pair": (first, {"second": second})})
    data = tf.data.Dataset.from_tensor_slices(({"pair": (normal(6), {"second": normal(4)})}, labels()))
    return model, {"x": data.batch(BATCH)}


@DATA.case("micro_batch remat recover")
def inputs_only():
    class Reconstruct(layers.Layer):
        def call(self, inputs, outputs):
            self.add_loss(ops.mean(ops.square(inputs - outputs)))
            return outputs

    inputs = keras.Input(FEATURES)
    outputs = Reconstruct()(inputs, layers.Dense(6)(layers.Dense(3, activation="tanh")(inputs)))
    data = tf.data.Dataset.from_tensor_slices(normal(*FEATURES)).batch(BATCH)
    return compiled(keras.Model(inputs, outputs), None), {"x": data}


@DATA.case(equal=STANDARD)
def sample_weights():
    return classifier(weighted_metrics=["accuracy"]), arrays(normal(*FEATURES), labels(), sample_weight=weights())


@DATA.case()
def sample_weights_of_zero():
    zeros = weights() * (np.arange(SAMPLES) % 3 > 0)
    return classifier(weighted_metrics=["accuracy"]), arrays(normal(*FEATURES), labels(), sample_weight=zeros)


@DATA.case(equal=STANDARD)
def class_weights():
    return classifier(), arrays(normal(*FEATURES), labels(), class_weight={0: 1.0, 1: 0.5, 2: 2.0})


@DATA.case(equal=STANDARD)
def sample_weights_by_step():
    inputs = keras.Input((5, 3))
    model = compiled(keras.Model(inputs, layers.Dense(CLASSES)(layers.Dense(4, activation="tanh")(inputs))))
    by_step = np.abs(normal(5))
    return model, arrays(normal(5, 3), labels(5), sample_weight=by_step)


@DATA.case()
def more_steps_than_an_epoch():
    data = tf.data.Dataset.from_tensor_slices((normal(*FEATURES), labels())).batch(BATCH).repeat()
    return classifier(), {"x": data, "steps_per_epoch": 2}


@DATA.case("micro_batch+remat recover recover+micro_batch")
def several_steps_per_execution():
    return classifier(steps_per_execution=2), arrays(normal(*FEATURES), labels())


@DATA.case()
def sequences_of_changing_length():
    inputs = keras.Input((None,), dtype="int32")
    tensor = layers.LSTM(4)(layers.Embedding(9, 4, mask_zero=True)(inputs))
    model = compiled(keras.Model(inputs, layers.Dense(CLASSES)(layers.Dense(4)(tensor))))
    parts = [(x[:, : 3 + index], y) for index, (x, y) in enumerate(batches(tokens(), labels()))]
    spec = (tf.TensorSpec((None, None), "int64"), tf.TensorSpec((None,), "int64"))
    data = tf.data.Dataset.from_generator(lambda: iter(parts), output_signature=spec)
    # Where the end is not known, Keras runs a step too many, which may count as an iteration of the optimizer.
    return model, {"x": data.apply(tf.data.experimental.assert_cardinality(len(parts)))}


@DATA.case(equal=STANDARD)
def validation_data():
    validation = (normal(*FEATURES)[:7], labels()[:7], weights()[:7])
    return classifier(), arrays(normal(*FEATURES), labels(), validation_data=validation, validation_batch_size=3)


@DATA.case()
def validation_split_with_dropout():
    return classifier(), arrays(normal(*FEATURES), labels(), validation_split=0.3, validation_freq=2)


@DATA.case("micro_batch")
def last_batch_smaller_than_a_slice():
    return classifier(), arrays(normal(*FEATURES)[:6], labels()[:6])


class Subclassed(keras.Model):
    """Layers called in Python."""

    def __init__(self):
        super().__init__()
        self.hidden, self.dropout = layers.Dense(8, activation="tanh"), layers.Dropout(0.2)
        self.head = layers.Dense(CLASSES)

    def call(self, inputs, training=False):
        return self.head(self.dropout(self.hidden(inputs), training=training))


class MakesLayersInBuild(keras.Model):
    def build(self, input_shape):
        self.hidden = keras.layers.Dense(16, activation="relu")
        self.dropout = keras.layers.Dropout(0.3)
        self.head = keras.layers.Dense(CLASSES)
        super().build(input_shape)

    def call(self, inputs, training=None):
        return self.head(self.dropout(self.hidden(inputs), training=training))


class OwnTrainStep(keras.Model):
    """A training step as in Keras's guide."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True)) * 1.5
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            metric.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}


class OwnLossOfModel(keras.Model):
    """A loss with a term of the batch's size."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + 0.1 * ops.mean(ops.square(y_pred))


class OwnMetricsOfModel(keras.Model):
    """Metrics beyond those of `compile`."""

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "largest": ops.max(y_pred)}


class OwnTestStep(keras.Model):
    """Evaluates in its own way."""

    def test_step(self, data):
        x, y = data
        return {"doubled": 2 * self.compute_loss(x=x, y=y, y_pred=self(x, training=False))}


def functional(kind):
    model = mlp()
    return kind(model.inputs, model.outputs[0])


CLASSES_OF_MODELS.add("functional", lambda: features(layers.Dropout(0.3)), equal="micro_batch remat recover")


@CLASSES_OF_MODELS.case(equal="micro_batch recover")
def sequential():
    model = keras.Sequential(
        [keras.Input(FEATURES), layers.Dense(8, activation="tanh"), layers.Dropout(0.2), layers.Dense(CLASSES)]
    )
    return compiled(model), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case()
def sequential_without_input():
    model = keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dropout(0.2), layers.Dense(CLASSES)])
    return compiled(model), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case()
def subclassed_unbuilt():
    return compiled(Subclassed()), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case(equal="micro_batch recover", quick="micro_batch")
def layers_made_in_build():
    """Their weights depend on what was drawn from Python's random numbers before the model is built."""
    return compiled(MakesLayersInBuild()), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case("micro_batch remat recover recover+micro_batch")
def subclassed_built():
    model = Subclassed()
    model(normal(*FEATURES)[:1])
    return compiled(model), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case(quick="micro_batch")
def own_train_step():
    return compiled(functional(OwnTrainStep), metrics=None), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case()
def own_compute_loss():
    return compiled(functional(OwnLossOfModel)), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case()
def own_compute_metrics():
    return compiled(functional(OwnMetricsOfModel)), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case("micro_batch recover")
def own_test_step():
    data = arrays(normal(*FEATURES), labels())
    return compiled(functional(OwnTestStep)), {**data, "validation_data": (data["x"][:5], data["y"][:5])}


@CLASSES_OF_MODELS.case()
def train_step_of_the_instance():
    model = compiled(mlp())

    def train_step(data):
        return {**keras.Model.train_step(model, data), "own": tf.constant(1.0)}

    model.train_step = train_step
    return model, arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case()
def call_of_the_instance():
    model = compiled(mlp())
    original = model.call
    model.call = lambda inputs, training=None, mask=None: 1.5 * original(inputs, training=training, mask=mask)
    return model, arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case()
def variational_autoencoder():
    class Autoencoder(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = layers.Dense(4), layers.Dense(6)
            self.seeds = keras.random.SeedGenerator(2)
            self.trackers = [keras.metrics.Mean(name=name) for name in ("total", "reconstruction", "divergence")]

        @property
        def metrics(self):
            return self.trackers

        def call(self, inputs):
            mean, deviation = ops.split(self.encoder(inputs), 2, axis=-1)
            noise = keras.random.normal(ops.shape(mean), dtype=mean.dtype, seed=self.seeds)
            return self.decoder(mean + ops.exp(0.5 * deviation) * noise), mean, deviation

        def train_step(self, data):
            with tf.GradientTape() as tape:
                outputs, mean, deviation = self(data)
                reconstruction = ops.mean(ops.sum(ops.square(data - outputs), axis=-1))
                divergence = -0.5 * ops.mean(1 + deviation - ops.square(mean) - ops.exp(deviation))
                total = reconstruction + divergence
            gradients = tape.gradient(total, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            for tracker, value in zip(self.trackers, (total, reconstruction, divergence), strict=True):
                tracker.update_state(value)
            return {each.name: each.result() for each in self.trackers}

    model = Autoencoder()
    model(normal(*FEATURES)[:1])
    return compiled(model, None), arrays(normal(*FEATURES))


@CLASSES_OF_MODELS.case()
def adversarial_with_two_optimizers():
    class Adversarial(keras.Model):
        def __init__(self):
            super().__init__()
            self.discriminator = keras.Sequential([keras.Input(FEATURES), layers.Dense(6, "tanh"), layers.Dense(1)])
            self.generator = keras.Sequential([keras.Input((3,)), layers.Dense(6, "tanh"), layers.Dense(6)])
            self.seeds = keras.random.SeedGenerator(2)
            self.built = True

        def compile(self):
            super().compile(jit_compile=False)
            self.first, self.second = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.05)
            self.entropy = losses.BinaryCrossentropy(from_logits=True)

        def train_step(self, real):
            noise = keras.random.normal((tf.shape(real)[0], 3), dtype=real.dtype, seed=self.seeds)
            ones = tf.ones((tf.shape(real)[0], 1), real.dtype)
            with tf.GradientTape() as tape:
                fake = self.generator(noise)
                of_fake = self.entropy(0 * ones, self.discriminator(fake))
                loss = of_fake + self.entropy(ones, self.discriminator(real))
            trained = self.discriminator.trainable_weights
            self.first.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
            with tf.GradientTape() as tape:
                fooled = self.entropy(ones, self.discriminator(self.generator(noise)))
            trained = self.generator.trainable_weights
            self.second.apply_gradients(zip(tape.gradient(fooled, trained), trained, strict=True))
            return {"discriminator": loss, "generator": fooled}

    model = Adversarial()
    model.compile()
    return model, arrays(normal(*FEATURES))


@CLASSES_OF_MODELS.case()
def distillation():
    class Distiller(keras.Model):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = mlp(), mlp()
            self.teacher.trainable = False

        def call(self, inputs, training=False):
            return self.student(inputs, training=training)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            soft = ops.softmax(self.teacher(x, training=False))
            divergence = losses.KLDivergence()(soft, ops.softmax(y_pred))
            return super().compute_loss(x, y, y_pred, sample_weight) + 0.5 * divergence

    model = Distiller()
    model(normal(*FEATURES)[:1])
    return compiled(model), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case()
def eager():
    return classifier(run_eagerly=True), arrays(normal(*FEATURES), labels())


@CLASSES_OF_MODELS.case("micro_batch recover")
def eager_with_random_numbers_of_numpy():
    class NumpyNoise(layers.Layer):
        def call(self, inputs, training=False):
            return inputs * np.random.normal(1.0, size=6).astype(keras.config.floatx()) if training else inputs

    return features(NumpyNoise(), run_eagerly=True)


@CLASSES_OF_MODELS.case("micro_batch recover")
def trained_before():
    model, data = classifier(optimizer="adam"), arrays(normal(*FEATURES), labels())
    model.fit(**data, epochs=1, verbose=0)
    return model, data


def with_callback(make, *, monitor_validation=False, extra=None, **settings):
    """A case builder: an MLP with a callback."""

    def build():
        callback = make()
        data = arrays(normal(*FEATURES), labels(), callbacks=[callback], epochs=4 if monitor_validation else 2)
        if monitor_validation:
            data["validation_data"] = (data["x"][::-1][:6], data["y"][:6])
        model = classifier(**{key: value() for key, value in settings.items()})
        return model, data, (lambda: extra(callback)) if extra else dict

    return build


class HalvesWeights(keras.callbacks.Callback):
    """Changes weights during training."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            for variable in self.model.trainable_variables:
                variable.assign(variable * 0.5)


class ReadsWeights(keras.callbacks.Callback):
    """Notes what it can see of the model at every batch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self._see()

    def on_train_batch_end(self, batch, logs=None):
        self._see()

    def _see(self):
        total = sum(float(np.sum(np.abs(each.numpy()))) for each in self.model.trainable_variables)
        self.seen.append([total, float(self.model.optimizer.iterations.numpy())])


class ChangesRate(keras.callbacks.Callback):
    """Changes the learning rate before training starts."""

    def on_train_begin(self, logs=None):
        self.model.optimizer.learning_rate = 0.02


def _saved(callback):
    folder = Path(callback.filepath).parent
    return {"saved": sorted(each.name for each in folder.iterdir())}


_FOLDERS = tempfile.TemporaryDirectory()
atexit.register(_FOLDERS.cleanup)


def _folder(name):
    return str(Path(tempfile.mkdtemp(dir=_FOLDERS.name)) / name)


CALLBACKS.add(
    "model_checkpoint",
    with_callback(
        lambda: keras.callbacks.ModelCheckpoint(
            _folder("{epoch}.weights.h5"), save_weights_only=True, monitor="loss", save_best_only=True
        ),
        extra=_saved,
    ),
    equal="recover",
)
CALLBACKS.add(
    "model_checkpoint_of_model",
    with_callback(lambda: keras.callbacks.ModelCheckpoint(_folder("{epoch}.keras")), extra=_saved),
)
CALLBACKS.add(
    "early_stopping",
    with_callback(
        lambda: keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.2, restore_best_weights=True),
        monitor_validation=True,
        extra=lambda callback: {"stopped": callback.stopped_epoch},
    ),
    equal="recover",
)
CALLBACKS.add(
    "reduce_rate_on_plateau",
    with_callback(lambda: keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=10.0, factor=0.3)),
    equal="recover",
)
CALLBACKS.add(
    "rate_scheduler",
    with_callback(lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (1 + epoch))),
    equal="recover",
)
CALLBACKS.add(
    "backup_and_restore",
    with_callback(lambda: keras.callbacks.BackupAndRestore(_folder("backup"), save_freq=2)),
)
CALLBACKS.add(
    "swap_averaged_weights",
    with_callback(
        lambda: keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        optimizer=lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8),
    ),
)
CALLBACKS.add(
    "changes_weights", with_callback(HalvesWeights), "micro_batch recover recover+micro_batch", equal="recover"
)
CALLBACKS.add(
    "reads_weights", with_callback(ReadsWeights, extra=lambda callback: {"seen": callback.seen}), equal="recover"
)
CALLBACKS.add("changes_rate", with_callback(ChangesRate))


@SETTINGS.case(equal="micro_batch remat recover")
def layer_seeds():
    return features(layers.Dropout(0.4, seed=11), layers.GaussianNoise(0.2, seed=12))


@SETTINGS.case()
def operation_seeds():
    class Noise(layers.Layer):
        def call(self, inputs, training=False):
            if not training:
                return inputs
            return inputs * tf.random.stateless_normal(tf.shape(inputs), seed=[1, 2], dtype=inputs.dtype)

    return features(Noise())


@SETTINGS.case()
def operation_seeds_of_stateful_operations():
    class Noise(layers.Layer):
        def call(self, inputs, training=False):
            return inputs * tf.random.uniform(tf.shape(inputs), seed=4, dtype=inputs.dtype) if training else inputs

    return features(Noise())


@SETTINGS.case()
def truncated_and_categorical_draws():
    """Operations that draw without saying so in their names."""

    class Noise(layers.Layer):
        def call(self, inputs, training=False):
            if not training:
                return inputs
            logits = tf.zeros((1, 2), inputs.dtype)
            chosen = tf.cast(tf.random.categorical(logits, tf.shape(inputs)[0]), inputs.dtype)
            factors = tf.random.truncated_normal(tf.shape(inputs), 1.0, dtype=inputs.dtype)
            return inputs * (factors + tf.transpose(chosen))

    return features(Noise())


@SETTINGS.case()
def sampled_candidates():
    """`tf.nn.sampled_softmax_loss` and its relatives draw the classes they compare with."""

    class Sampled(layers.Layer):
        def call(self, inputs, training=False):
            drawn = tf.random.log_uniform_candidate_sampler(tf.zeros((1, 1), tf.int64), 1, 3, True, 50)
            share = tf.cast(drawn.sampled_candidates, inputs.dtype) / 50.0
            return inputs * (1.0 + tf.reduce_sum(share)) if training else inputs

    return features(Sampled())


@SETTINGS.case()
def tensorflow_generator():
    class Noise(layers.Layer):
        def __init__(self):
            super().__init__()
            self.random = tf.random.Generator.from_seed(3)

        def call(self, inputs, training=False):
            return inputs * self.random.normal(tf.shape(inputs), 1.0, dtype=inputs.dtype) if training else inputs

    return features(Noise())


@SETTINGS.case()
def shared_seed_generator():
    class Noise(layers.Layer):
        def __init__(self, seeds):
            super().__init__()
            self.seeds = seeds

        def call(self, inputs, training=False):
            if not training:
                return inputs
            return inputs * keras.random.normal(ops.shape(inputs), 1.0, dtype=inputs.dtype, seed=self.seeds)

    seeds = keras.random.SeedGenerator(5)
    return features(Noise(seeds), layers.Dense(6), Noise(seeds))


@SETTINGS.case("micro_batch remat recover", dtype="mixed_bfloat16")
def mixed_bfloat16():
    return features(layers.Dense(8, activation="relu"))


@SETTINGS.case("micro_batch+remat recover", dtype="mixed_float16")
def mixed_float16_with_loss_scale():
    return features(layers.Dense(8, activation="relu"))


@SETTINGS.case("micro_batch fused_batch_norm", dtype="mixed_bfloat16")
def mixed_bfloat16_with_batch_normalization():
    return images(layers.BatchNormalization(momentum=0.9), layers.ReLU())


@SETTINGS.case("fused_batch_norm", dtype="float32")
def fused_with_mask():
    model = stack((5, 4), layers.Masking(), layers.BatchNormalization(momentum=0.9))
    return compiled(model), arrays(normal(5, 4), labels())


@SETTINGS.case("fused_batch_norm", dtype="float32")
def fused_with_one_pixel():
    model = stack((1, 1, 4), layers.BatchNormalization(momentum=0.9), layers.Conv2D(4, 1))
    return compiled(model), arrays(normal(1, 1, 4)[:9], labels()[:9])


@SETTINGS.case("fused_batch_norm", dtype="float32")
def fused_without_scale():
    return images(layers.BatchNormalization(scale=False, center=False), layers.ReLU(), layers.Dropout(0.2))


@SETTINGS.case("micro_batch remat recover")
def compiled_with_xla():
    return features(layers.Dropout(0.3), jit_compile=True)


@SETTINGS.case("fused_batch_norm", dtype="float32")
def fused_and_compiled_with_xla():
    return images(layers.BatchNormalization(), layers.ReLU(), jit_compile=True)


@SETTINGS.case("micro_batch remat")
def layers_of_other_precision():
    return features(layers.Dense(8, dtype="float32"), layers.Dropout(0.2, dtype="float32"))
