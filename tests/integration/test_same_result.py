"""A planned run ends where the plain run ends: weights, losses, metrics, optimizer state, seeds, statistics."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import memfit

SAMPLES, BATCH = 22, 8  # the last batch is smaller, and a slice of 3 leaves a remainder of every batch
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def mlp():
    inputs = keras.Input((8,))
    tensor = layers.Dense(16, activation="relu", kernel_regularizer="l2")(inputs)
    tensor = layers.Dense(16, activity_regularizer="l2")(layers.Dropout(0.3)(tensor))
    return keras.Model(inputs, layers.Dense(4)(tensor))


def cnn():
    inputs = tensor = keras.Input((8, 8, 3))
    for _ in range(2):
        tensor = layers.Conv2D(6, 3, padding="same", use_bias=False)(tensor)
        tensor = layers.Dropout(0.2)(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(tensor)))
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling2D()(tensor)))


def unet():
    inputs = keras.Input((8, 8, 3))
    skip = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(6, 3, padding="same", use_bias=False)(inputs)))
    deep = layers.Conv2D(8, 3, padding="same", use_bias=False)(layers.MaxPooling2D()(skip))
    deep = layers.Dropout(0.2)(layers.ReLU()(layers.BatchNormalization()(deep)))
    joined = layers.Concatenate()([layers.UpSampling2D()(deep), skip])
    joined = layers.Conv2D(6, 3, padding="same", activation="relu")(joined)
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling2D()(joined)))


def transformer():
    inputs = keras.Input((6,), dtype="int32")
    tensor = layers.Embedding(20, 8, mask_zero=True)(inputs)
    for _ in range(2):
        normed = layers.LayerNormalization()(tensor)
        attended = layers.MultiHeadAttention(2, 4, dropout=0.2, use_bias=False)(normed, normed)
        tensor = layers.Add()([tensor, layers.Dropout(0.2)(attended)])
        hidden = layers.Dense(16, activation="gelu")(layers.LayerNormalization()(tensor))
        tensor = layers.Add()([tensor, layers.Dropout(0.1)(layers.Dense(8)(hidden))])
    return keras.Model(inputs, layers.Dense(4)(tensor))


def two_by_two():
    first, second = keras.Input((8,), name="first"), keras.Input((5,), name="second")
    tensor = layers.Concatenate()([layers.Dense(8, activation="relu")(first), layers.Dense(8)(second)])
    return keras.Model([first, second], {"kind": layers.Dense(3)(tensor), "size": layers.Dense(1)(tensor)})


def nested():
    inner = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(6, 3, use_bias=False), layers.BatchNormalization(), layers.Dropout(0.1)]
    )
    inputs = keras.Input((6, 6, 6))
    block = keras.Model(inputs, layers.Add()([inputs, layers.Conv2D(6, 3, padding="same", activation="relu")(inputs)]))
    pooled = layers.GlobalAveragePooling2D()
    return keras.Sequential([keras.Input((8, 8, 3)), inner, block, block, pooled, layers.Dense(4)])


@pytest.fixture(autouse=True)
def in_float64():
    """So that equal means equal."""
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx(before)
    # Keras keeps the policy it made of the other type.
    keras.config.set_dtype_policy(before)


def compiled(build, *, jit):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    model = build()
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.9)
    # With its default epsilon Adam makes visible digits of the rounding of gradients that are nearly 0.
    optimizer = keras.optimizers.Adam(rate, epsilon=1e-4, use_ema=True, global_clipnorm=0.5)
    if build is two_by_two:
        losses = {"kind": LOGITS, "size": keras.losses.MeanSquaredError(reduction="sum")}
        metrics, weights = {"kind": ["accuracy"], "size": ["mae"]}, {"kind": 1.0, "size": 0.1}
        model.compile(optimizer, losses, metrics=metrics, loss_weights=weights, jit_compile=jit)
    else:
        model.compile(optimizer, LOGITS, metrics=["accuracy"], weighted_metrics=["accuracy"], jit_compile=jit)
    return model


def data(model):
    random = np.random.default_rng(0)
    x = [
        random.integers(0, 20, shape) if dtype == "int32" else random.normal(size=shape)
        for shape, dtype in (((SAMPLES, *each.shape[1:]), each.dtype) for each in model.inputs)
    ]
    if len(x) == 2:
        return x, {"kind": random.integers(0, 3, SAMPLES), "size": random.normal(size=(SAMPLES, 1))}, None
    y = random.integers(0, 4, (SAMPLES, *model.output_shape[1:-1]))
    return x[0], y, random.random(SAMPLES) if y.ndim == 1 else None


def trained(build, plan, *, jit=False, source="arrays", **settings):
    model = compiled(build, jit=jit)
    x, y, weights = data(model)
    if source == "arrays":
        given = {"x": x, "y": y, "sample_weight": weights, "batch_size": BATCH}
    else:
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        given = {"x": dataset if source == "dataset" else generated(dataset)}
    history = memfit.fit(model, **given, epochs=2, verbose=0, shuffle=False, plan=plan, **settings).history
    return history, [
        np.array(each) for each in (*model.variables, *model.optimizer.variables, *model.metrics_variables)
    ]


def generated(dataset):
    batches = list(dataset.as_numpy_iterator())

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(batches)

        def __getitem__(self, index):
            return batches[index]

    return Batches()


def assert_same(planned, plain):
    (history, state), (plain_history, plain_state) = planned, plain
    for name, values in plain_history.items():
        assert history[name] == pytest.approx(values, rel=1e-6), name
    for value, plain_value in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(value, plain_value, rtol=0, atol=1e-6 * np.abs(plain_value).max() + 1e-12)


REMAT, SLICED, BOTH = memfit.Plan(remat=3), memfit.Plan(micro_batch=3), memfit.Plan(remat=3, micro_batch=3)
EXACT = [
    *((build, plan) for build in (mlp, transformer, two_by_two) for plan in (REMAT, SLICED, BOTH)),
    *((build, REMAT) for build in (cnn, unet, nested)),  # batch normalisation over slices is another training
]
NAMES = [f"{build.__name__}-{'-'.join(plan.techniques)}" for build, plan in EXACT]
QUICK = (mlp, cnn)


@pytest.mark.parametrize(
    ("build", "plan"),
    [
        pytest.param(*each, id=name, marks=() if each[0] in QUICK else pytest.mark.slow)
        for each, name in zip(EXACT, NAMES, strict=True)
    ],
)
def test_graph_mode(build, plan):
    assert_same(trained(build, plan), trained(build, None))


@pytest.mark.slow
@pytest.mark.parametrize(("build", "plan"), EXACT, ids=NAMES)
def test_compiled_with_xla(build, plan):
    assert_same(trained(build, plan, jit=True), trained(build, None, jit=True))


@pytest.mark.slow
def test_a_last_batch_smaller_than_a_slice_compiled_with_xla():
    assert SAMPLES % BATCH < 7
    assert_same(trained(mlp, memfit.Plan(micro_batch=7), jit=True), trained(mlp, None, jit=True))


@pytest.mark.parametrize("source", ["dataset", "generator"])
def test_other_sources_of_data(source):
    assert_same(trained(mlp, BOTH, source=source), trained(mlp, None, source=source))


def test_class_weights():
    weights = {"class_weight": {0: 1.0, 1: 0.5, 2: 2.0, 3: 0.1}}
    assert_same(trained(mlp, BOTH, source="dataset", **weights), trained(mlp, None, source="dataset", **weights))


def test_named_layers_are_recomputed():
    assert_same(trained(cnn, memfit.Plan(remat=("conv2d", "batch_normalization", "re_lu"))), trained(cnn, None))


def test_a_metric_of_the_users_own_is_updated_once_a_batch():
    def largest(y_true, y_pred):  # a mean of slices would be another number
        return keras.ops.max(y_pred) + 0 * keras.ops.sum(keras.ops.cast(y_true, y_pred.dtype))

    def run(plan):
        model = compiled(mlp, jit=False)
        model.compile(model.optimizer, LOGITS, metrics=[largest], jit_compile=False)
        x, y, _ = data(model)
        return memfit.fit(model, x, y, batch_size=BATCH, shuffle=False, verbose=0, plan=plan).history

    assert run(SLICED)["largest"] == pytest.approx(run(None)["largest"])


def test_statistics_of_sliced_batches_are_the_batchs_own():
    def run(plan):
        model = compiled(cnn, jit=False)
        model.compile(keras.optimizers.SGD(0.0), LOGITS, jit_compile=False)  # the first layer sees the same every step
        x, y, _ = data(model)
        memfit.fit(model, x, y, batch_size=BATCH, shuffle=False, verbose=0, plan=plan, numerics="close")
        return model.get_layer("batch_normalization").non_trainable_variables

    for value, plain in zip(run(SLICED), run(None), strict=True):
        np.testing.assert_allclose(value, plain, rtol=1e-9)


def test_several_steps_per_execution():
    def run(plan):
        model = compiled(mlp, jit=False)
        model.compile(model.optimizer, LOGITS, steps_per_execution=2, jit_compile=False)
        x, y, _ = data(model)
        history = memfit.fit(model, x, y, batch_size=BATCH, shuffle=False, verbose=0, plan=plan).history
        return history, [np.array(each) for each in model.variables]

    assert_same(run(BOTH), run(None))


def test_fused_normalisation_has_the_same_statistics():
    keras.config.set_floatx("float32")

    def run(plan):
        history, state = trained(cnn, plan)
        return history["loss"], state

    (loss, state), (plain_loss, plain_state) = run(memfit.Plan(fused_batch_norm=True)), run(None)
    assert loss == pytest.approx(plain_loss, rel=1e-4)
    for value, plain in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(value, plain, rtol=2e-3, atol=2e-4)
