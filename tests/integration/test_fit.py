"""`memfit.fit` and `memfit.applied`: what is refused, and that the model comes out as it went in."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit

X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
Y = np.random.default_rng(1).integers(0, 4, 16)
EVERYTHING = memfit.Plan(micro_batch=2, remat=2, precision="mixed_float16", jit=False, optimizer="sgd")


def mlp(**settings):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, activation="relu", name="hidden")(inputs)
    model = keras.Model(inputs, layers.Dense(4)(layers.Dropout(0.2)(hidden)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": "adam", "loss": loss, "jit_compile": False, **settings})
    return model


def fit(model, plan, **settings):
    return memfit.fit(model, X, Y, batch_size=8, verbose=0, plan=plan, **settings)


def surface(model):
    """What a user can see of a model, besides its weights."""
    lines = []
    model.summary(print_fn=lines.append)
    own = {key: type(value) for key, value in vars(model).items() if key in ("call", "train_step")}
    policies = [each.dtype_policy.name for each in model._flatten_layers()]
    return lines, own, policies, id(model.optimizer), model.jit_compile, model.get_config()


class Fails(keras.callbacks.Callback):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_train_batch_end(self, batch, logs=None):
        self.weights = self.model.get_weights()
        raise self.error


def test_without_a_plan_it_is_fit():
    assert fit(mlp(), None).history == mlp().fit(X, Y, batch_size=8, verbose=0).history


def test_everything_is_put_back():
    model = mlp()
    before = surface(model)
    fit(model, EVERYTHING)
    assert surface(model) == before


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_everything_is_put_back_after_a_failure(error):
    model, failing = mlp(), Fails(error)
    before = surface(model)
    with pytest.raises(type(error)):
        fit(model, EVERYTHING, callbacks=[failing])
    assert surface(model) == before
    for value, last in zip(model.get_weights(), failing.weights, strict=True):
        np.testing.assert_array_equal(value, last)
    model.fit(X, Y, verbose=0)


def test_a_model_saved_inside_is_an_ordinary_model(tmp_path):
    model = mlp()
    with memfit.applied(model, memfit.Plan(micro_batch=2, remat=2)):
        model.fit(X, Y, batch_size=8, verbose=0)
        model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-6)


def test_validation_and_callbacks_see_every_batch_once():
    seen = []
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append((batch, *logs)))
    history = fit(mlp(), memfit.Plan(micro_batch=2), validation_data=(X, Y), callbacks=[callback]).history
    assert seen == [(0, "loss"), (1, "loss")]
    assert "val_loss" in history


def test_a_subclassed_model_gets_slices():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layers.Dense(4)

        def call(self, inputs):
            return self.layer(inputs)

    def run(plan):
        keras.utils.set_random_seed(0)
        model = Own()
        model(X[:1])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        return fit(model, plan, shuffle=False).history["loss"], model

    (loss, _), (plain, model) = run(memfit.Plan(micro_batch=2)), run(None)
    assert loss == pytest.approx(plain, rel=1e-5)
    with pytest.raises(memfit.MemfitError, match="not a graph of layers"):
        fit(model, memfit.Plan(remat=2))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"micro_batch": 0}, "at least 1; got 0"),
        ({"micro_batch": 9}, "larger than the batch of 8"),
        ({"micro_batch": "many"}, "got 'many'"),
        ({"remat": ("hidden", "nobody")}, "does not have: nobody"),
        ({"remat": 1}, "remat=1 is not possible"),
        ({"remat": 2.5}, "a number of segments or names of layers; got 2.5"),
        ({"precision": "float8"}, "mixed_float16"),
        ({"fused_batch_norm": True}, "no batch normalisation that can be fused"),
        ({"remat": 2, "model": "somebody else's"}, "made for the model somebody else's"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_touched(plan, message):
    model = mlp()
    before = surface(model)
    with pytest.raises(memfit.MemfitError, match=message):
        fit(model, memfit.Plan(**plan))
    assert surface(model) == before


def test_a_train_step_of_the_users_own_is_refused_by_name():
    class Own(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    inputs = keras.Input((8,))
    model = Own(inputs, layers.Dense(4)(inputs))
    model.compile("adam", "mse", jit_compile=False)
    with pytest.raises(memfit.MemfitError, match="train_step of Own"):
        fit(model, memfit.Plan(micro_batch=2))


def test_a_loss_without_a_reduction_is_the_one_keras_trains_on():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    sliced, plain = fit(mlp(loss=loss), memfit.Plan(micro_batch=2)), fit(mlp(loss=loss), None)
    assert sliced.history["loss"] == pytest.approx(plain.history["loss"], rel=1e-5)


def test_slices_with_batch_normalisation_say_that_they_are_only_close():
    from memfit.planning.applied import check

    model = keras.Sequential([keras.Input((8,)), layers.BatchNormalization(name="norm"), layers.Dense(4)])
    model.compile("adam", "mse", jit_compile=False)
    verdict = check(model, memfit.Plan(micro_batch=2))["micro_batch"]
    assert verdict.grade == "close"
    assert "'norm'" in verdict.why
