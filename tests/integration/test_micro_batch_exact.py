"""A step in slices trains as the step on the whole batch: losses, embeddings, state and random numbers of all kinds."""

import random
import threading
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import memfit
from memfit.compat.patching import patched
from memfit.planning.applied import applied
from memfit.techniques import micro_batch

# The matrix of `exactness` has a few of these in every run.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_float64")]

SAMPLES, BATCH, SLICE = 14, 8, 3  # the last batch and the last slice of each batch are smaller
RANDOM = np.random.default_rng(0)
X, TOKENS = RANDOM.normal(size=(SAMPLES, 6)), RANDOM.integers(0, 9, (SAMPLES, 5))
LABELS, VALUES = RANDOM.integers(0, 3, SAMPLES), RANDOM.normal(size=(SAMPLES, 2))
ONE_HOT, WEIGHTS = np.eye(3)[LABELS], RANDOM.random(SAMPLES)


def trained(build, data, *, sliced, remat=None, **settings):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    model = build()
    batch = {} if isinstance(data["x"], tf.data.Dataset) else {"batch_size": BATCH}
    # Not memfit.applied, which verifies the first batch on its own: what differs shall show here.
    plan = memfit.Plan(micro_batch=SLICE, remat=remat)
    with applied(model, plan) if sliced else nullcontext():
        history = model.fit(**data, **batch, **settings, epochs=1, shuffle=False, verbose=0).history
        passes = model.train_step.passes if sliced else None
    variables = (*model.variables, *model.optimizer.variables, *model.metrics_variables)
    return history, [np.array(each) for each in variables], passes


def assert_same(build, data, *, passes=None, **settings):
    history, state, taken = trained(build, data, sliced=True, **settings)
    plain_history, plain_state, _ = trained(build, data, sliced=False, **settings)
    assert {*history} == {*plain_history}
    for name, values in plain_history.items():
        assert history[name] == pytest.approx(values, rel=1e-6), name
    for value, plain in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(value, plain, rtol=0, atol=1e-6 * np.abs(plain).max(initial=0) + 1e-12)
    assert passes is None or taken == passes


def compiled(model, loss=None, **settings):
    # With its default epsilon Adam makes visible digits of the rounding of gradients that are nearly 0.
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-4, global_clipnorm=0.05), loss, **settings)
    return model


def classifier(loss, *, outputs=3, activation="softmax", jit=False, metrics=("mae",)):
    def build():
        inputs = keras.Input((6,))
        hidden = layers.Dense(8, activation="relu", kernel_regularizer="l2", activity_regularizer="l1")(inputs)
        predicted = layers.Dense(outputs, activation=activation)(layers.Dropout(0.3)(hidden))
        return compiled(keras.Model(inputs, predicted), loss, metrics=[*metrics], jit_compile=jit)

    return build


def around(layer, loss="mse", *, jit=False):
    def build():
        inputs = keras.Input((6,))
        return compiled(keras.Model(inputs, layers.Dense(2)(layer()(layers.Dense(6)(inputs)))), loss, jit_compile=jit)

    return build


def mean_error(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred))


def root_of_mean_error(y_true, y_pred):
    return ops.sqrt(mean_error(y_true, y_pred))


def sum_of_errors(y_true, y_pred):
    return ops.sum(ops.square(y_true - y_pred))


class ReducedAlone(keras.losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return mean_error(ops.cast(y_true, y_pred.dtype), y_pred)


class TestLosses:
    @pytest.mark.parametrize(
        ("loss", "passes"),
        [
            ("categorical_crossentropy", 1),
            (mean_error, 1),
            (keras.losses.Dice, 2),
            (root_of_mean_error, 2),
            pytest.param(sum_of_errors, 2, marks=pytest.mark.slow),
            (ReducedAlone, 2),
        ],
    )
    def test_of_targets_and_predictions(self, loss, passes):
        loss = loss() if isinstance(loss, type) else loss
        assert_same(classifier(loss), {"x": X, "y": ONE_HOT}, passes=passes)

    @pytest.mark.parametrize(("loss", "passes"), [(mean_error, 2), ("categorical_crossentropy", 1)])
    def test_with_weights(self, loss, passes):
        assert_same(classifier(loss), {"x": X, "y": ONE_HOT, "sample_weight": WEIGHTS}, passes=passes)

    def test_that_compares_samples(self):
        loss = keras.losses.Circle()
        build = classifier(loss, outputs=4, activation=None, metrics=())
        assert_same(build, {"x": X, "y": LABELS}, passes=2)

    def test_of_two_outputs_have_their_own_trackers(self):
        def build():
            inputs = keras.Input((6,))
            first, second = layers.Dense(3, activation="sigmoid", name="a")(inputs), layers.Dense(2, name="b")(inputs)
            losses, metrics = {"a": keras.losses.Dice(), "b": "mse"}, {"a": ["accuracy"], "b": ["mae"]}
            model = keras.Model(inputs, {"a": first, "b": second})
            return compiled(model, losses, loss_weights={"a": 1.0, "b": 0.3}, metrics=metrics, jit_compile=False)

        assert_same(build, {"x": X, "y": {"a": ONE_HOT, "b": VALUES}}, passes=2)

    def test_that_mix_samples_while_layers_are_recomputed(self):
        assert_same(classifier(keras.losses.Dice()), {"x": X, "y": ONE_HOT}, remat=2, passes=2)

    def test_that_hide_masked_steps(self):
        def build():
            inputs = keras.Input((5,), dtype="int32")
            sequence = layers.SimpleRNN(4, return_sequences=True)(layers.Embedding(9, 4, mask_zero=True)(inputs))
            model = keras.Model(inputs, layers.Dense(3, activation="softmax")(sequence))
            return compiled(model, keras.losses.Dice(), metrics=["accuracy"], jit_compile=False)

        assert_same(build, {"x": TOKENS, "y": np.eye(3)[TOKENS % 3]}, passes=2)

    def test_of_the_models_own_compute_loss_and_metrics(self):
        class Own(keras.Model):
            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return root_of_mean_error(y, y_pred) * (1 + ops.mean(x**2)) + 2 * sum(self.losses)

            def compute_metrics(self, x, y, y_pred, sample_weight=None):
                return {**super().compute_metrics(x, y, y_pred, sample_weight), "largest": ops.max(y_pred)}

        def build():
            inputs = keras.Input((6,))
            hidden = layers.Dense(8, kernel_regularizer="l2", activity_regularizer="l1")(inputs)
            return compiled(Own(inputs, layers.Dense(2)(hidden)), "mse", metrics=["mae"], jit_compile=False)

        assert_same(build, {"x": X, "y": VALUES}, passes=2)

    @pytest.mark.parametrize("loss", ["mse", root_of_mean_error])
    @pytest.mark.parametrize("reduce", [ops.mean, ops.sum])
    def test_that_layers_add(self, reduce, loss):
        assert_same(around(lambda: Added(reduce), loss), {"x": X, "y": VALUES})

    def test_that_layers_add_alone(self):
        build = around(lambda: Added(ops.mean), None)
        with pytest.warns(UserWarning, match="Gradients do not exist"):
            assert_same(build, {"x": tf.data.Dataset.from_tensor_slices(X).batch(BATCH)})

    def test_that_is_no_mean_and_no_sum_is_refused(self):
        build = around(lambda: Added(ops.max))
        with pytest.raises(memfit.errors.InputError, match="neither a mean nor a sum"):
            trained(build, {"x": X, "y": VALUES}, sliced=True)

    def test_that_mix_samples_pass_verification(self):
        model = classifier(keras.losses.Dice())()
        with memfit.applied(model, memfit.Plan(micro_batch=SLICE)):
            history = model.fit(X, ONE_HOT, batch_size=BATCH, verbose=0).history
        assert np.isfinite(history["loss"]).all()

    def test_passes_are_known_before_training(self):
        assert micro_batch.passes(classifier("mse")(), (X, ONE_HOT)) == 1
        assert micro_batch.passes(classifier(keras.losses.Dice())(), (X, ONE_HOT)) == 2


class Added(layers.Layer):
    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def call(self, x):
        self.add_loss(0.1 * self.reduce(x**2))
        return x


class Positions(layers.Layer):
    """Embeddings of tokens and positions, in one table or two."""

    def __init__(self, combine):
        super().__init__()
        self.combine, self.tokens, self.positions = combine, layers.Embedding(9, 4), layers.Embedding(9, 4)

    def build(self, _):
        self.tokens.build()
        self.positions.build()
        self.built = True

    def call(self, x):
        positions = ops.arange(ops.shape(x)[1])
        return self.combine(self, x, positions, ops.broadcast_to(positions[None], ops.shape(x)))

    def compute_output_shape(self, shape):
        return (*shape, 4)


class TestEmbeddings:
    def check(self, combine, length, loss="mse", *, jit=False):
        def build():
            inputs = keras.Input((length,), dtype="int32")
            return compiled(keras.Model(inputs, layers.Dense(1)(Positions(combine)(inputs))), loss, jit_compile=jit)

        assert_same(build, {"x": TOKENS, "y": RANDOM.normal(size=(SAMPLES, 5, 1))})

    @pytest.mark.parametrize("length", [5, None])
    def test_of_positions_are_shared_by_samples(self, length):
        self.check(lambda self, x, shared, _: self.tokens(x) + self.positions(shared), length)

    @pytest.mark.parametrize("loss", [pytest.param("mse", marks=pytest.mark.slow), root_of_mean_error])
    def test_used_several_times(self, loss):
        def combine(self, x, shared, each):
            return (
                self.tokens(x) * self.tokens(shared)
                + self.tokens(8 - x)
                + self.positions(each) * self.positions(shared)
            )

        self.check(combine, None, loss)

    def test_inside_another_function(self):
        """What is applied to the variables may pass through functions that somebody else traces."""
        inputs = keras.Input((5,), dtype="int32")
        outputs = layers.Dense(1)(layers.Embedding(9, 4)(inputs))
        model = compiled(keras.Model(inputs, outputs), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        with applied(model, memfit.Plan(micro_batch=3)):
            outer = tf.function(lambda x, y: tf.function(lambda x, y: model.train_step((x, y)))(x, y))
            assert np.isfinite(outer(tf.constant(TOKENS), tf.zeros((SAMPLES, 5, 1), tf.float64))["loss"])


class Counting(layers.Layer):
    """State of every kind."""

    def __init__(self):
        super().__init__()
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)
        self.moving = self.add_weight(shape=(6,), initializer="zeros", trainable=False)
        self.per_call, self.per_sample = keras.metrics.Mean(name="per_call"), keras.metrics.Mean(name="per_sample")

    def call(self, x):
        self.calls.assign_add(1)
        self.moving.assign(0.9 * self.moving + 0.1 * ops.mean(x, 0))
        self.per_call.update_state(ops.mean(x**2))
        self.per_sample.update_state(ops.mean(x, 1))
        return x * ops.cast(self.calls, x.dtype)


class TestState:
    @pytest.mark.parametrize("loss", ["mse", root_of_mean_error])
    def test_counters_statistics_and_metrics_of_layers(self, loss):
        assert_same(around(Counting, loss), {"x": X, "y": VALUES})

    @pytest.mark.parametrize("loss", ["mse", root_of_mean_error])
    def test_weights_that_a_call_changes(self, loss):
        assert_same(around(lambda: layers.SpectralNormalization(layers.Dense(6)), loss), {"x": X, "y": VALUES})

    def test_a_train_step_of_the_instance_comes_back(self):
        model = classifier("mse")()
        model.train_step = mine = lambda _: {}
        with micro_batch.applied(model, 3):
            assert model.train_step is not mine
        assert model.train_step is mine

    def test_python_random_numbers_are_not_used_up(self):
        keras.utils.clear_session()
        model = classifier("mse")()
        random.seed(5)
        expected = random.random()
        random.seed(5)
        with micro_batch.applied(model, 3):
            model.train_on_batch(X, ONE_HOT)
        assert random.random() == expected


class Noise(layers.Layer):
    def __init__(self, draw):
        super().__init__()
        self.draw, self.seed = draw, keras.random.SeedGenerator(3)

    def call(self, x):
        return self.draw(x, ops.shape(x)[0], self.seed)

    def compute_output_shape(self, shape):
        return shape


DRAWS = {
    "unseeded": lambda x, _, __: x + keras.random.normal(ops.shape(x)) * keras.random.uniform(ops.shape(x)),
    "second-axis": lambda x, rows, seed: x + ops.transpose(keras.random.normal((6, rows), seed=seed)),
    "all-entries": lambda x, rows, seed: x + ops.reshape(keras.random.normal((rows * 6,), seed=seed), (-1, 6)),
    "per-sample": lambda x, _, seed: x + keras.random.normal(ops.shape(x), x, x**2, seed=seed),
    "integers": lambda x, _, seed: x + ops.cast(keras.random.randint(ops.shape(x), 0, 5, seed=seed), x.dtype),
    "gamma": lambda x, _, seed: x + keras.random.beta(ops.shape(x), 0.7, 1 + x**2, seed=seed),
    "binomial": lambda x, _, seed: x + keras.random.binomial(ops.shape(x), 5.0, 0.3, seed=seed),
    "classes": lambda x, _, seed: x + ops.cast(keras.random.categorical(ops.stop_gradient(x), 1, seed=seed), x.dtype),
}


SLOW_DRAWS = ("integers", "binomial", "per-sample", "all-entries")


class TestRandomNumbers:
    @pytest.mark.parametrize(
        "draw", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_DRAWS else []) for name in DRAWS]
    )
    def test_are_those_of_the_whole_batch(self, draw):
        assert_same(around(lambda: Noise(DRAWS[draw])), {"x": X, "y": VALUES})

    def test_with_two_unknown_sizes(self):
        def draw(x, _, seed):
            shared = keras.random.normal((ops.shape(x)[1], 1), seed=seed)
            by_time = keras.random.dropout(ops.transpose(x, (1, 0, 2)), 0.4, seed=seed)
            return ops.transpose(by_time, (1, 0, 2)) + shared

        def build():
            inputs = keras.Input((None, 3))
            pooled = layers.GlobalAveragePooling1D()(Noise(draw)(inputs))
            return compiled(keras.Model(inputs, layers.Dense(2)(pooled)), "mse", jit_compile=False)

        assert_same(build, {"x": RANDOM.normal(size=(SAMPLES, 4, 3)), "y": VALUES})


class TestThreads:
    def test_a_patch_is_seen_by_its_own_thread_only(self):
        module = type("Module", (), {"answer": staticmethod(lambda: "original")})
        original, seen, inside, leave = module.answer, {}, threading.Event(), threading.Event()

        def other():
            with patched(module, "answer", lambda was: lambda: f"other {was()}"):
                inside.set()
                leave.wait(10)
                seen["other"] = module.answer()

        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
        seen["unpatched"] = module.answer()
        with patched(module, "answer", lambda was: lambda: f"mine {was()}"):
            leave.set()
            thread.join()
            seen["mine"] = module.answer()
        assert seen == {"unpatched": "original", "other": "other original", "mine": "mine original"}
        assert module.answer is original

    def test_training_leaves_the_random_functions_as_they_were(self):
        before = tf.random.stateless_uniform
        keras.utils.clear_session()
        models = [classifier("categorical_crossentropy")() for _ in range(2)]

        def train(model):
            with micro_batch.applied(model, 3):
                model.train_on_batch(X, ONE_HOT)

        threads = [threading.Thread(target=train, args=(model,)) for model in models]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert tf.random.stateless_uniform is before


@pytest.mark.slow
class TestCompiledWithXla:
    @pytest.mark.parametrize("loss", ["categorical_crossentropy", keras.losses.Dice])
    def test_losses(self, loss):
        loss = loss() if isinstance(loss, type) else loss
        assert_same(classifier(loss, jit=True), {"x": X, "y": ONE_HOT})

    def test_embeddings(self):
        def combine(self, x, shared, each):
            return self.tokens(x) * self.tokens(shared) + self.positions(each) * self.positions(shared)

        TestEmbeddings().check(combine, 5, root_of_mean_error, jit=True)

    @pytest.mark.parametrize("layer", [Counting, lambda: Noise(DRAWS["second-axis"])])
    def test_layers(self, layer):
        assert_same(around(layer, root_of_mean_error, jit=True), {"x": X, "y": VALUES})
