"""Steps that draw with `tf.random`: every traced copy of a step counts its draws for itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import memfit
from memfit.errors import RecoveryWarning
from memfit.train.session import Recovery, Session


class NoisyLabels(keras.Model):
    """As GANs are often written."""

    def train_step(self, data):
        x, y = data
        y += 0.5 * tf.random.uniform(tf.shape(y))
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def losses(fit, **settings):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    model = NoisyLabels(inputs, keras.layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False, **settings)
    x, y = np.ones((24, 4), "float32"), np.ones((24, 1), "float32")
    found = []
    for _ in range(2):
        found += fit(model, x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
    return found


def watched(told):
    """As `memfit run` trains it."""

    def fit(model, *args, **kwargs):
        recovery = Recovery(pytest.fail, every_step=False)
        with Session(model, memfit.Plan(), recovery=recovery, step_aside=told.append):
            return model.fit(*args, **kwargs)

    return fit


@pytest.mark.parametrize("settings", [{}, {"steps_per_execution": 2}], ids=["one_step", "two_steps_at_a_time"])
def test_the_same_numbers_are_drawn_in_every_fit(settings):
    told = []
    assert losses(watched(told), **settings) == losses(
        lambda model, *args, **kwargs: model.fit(*args, **kwargs), **settings
    )
    assert told == ["its step draws random numbers with tf.random, which cannot be repeated"] * 2


def test_a_budget_that_changes_nothing_draws_the_same_numbers_in_the_first_fit_and_says_so():
    told = []

    def planned(model, *args, **kwargs):
        recovery = Recovery(pytest.fail, every_step=False)
        settings = {"recovery": recovery, "choose": lambda _: memfit.Plan(), "step_aside": told.append}
        with Session(model, memfit.Plan(), **settings):
            return model.fit(*args, **kwargs)

    once = losses(planned)
    assert once[:2] == losses(lambda model, *args, **kwargs: model.fit(*args, **kwargs))[:2]
    assert len(told) == 2
    assert all("a later fit or a restart starts them over" in each for each in told)


def test_recovery_that_was_asked_for_says_that_there_is_none():
    with pytest.warns(RecoveryWarning, match="trains without recovery: its step draws random numbers with tf.random"):
        losses(lambda *args, **kwargs: memfit.fit(*args, recover=True, **kwargs))
