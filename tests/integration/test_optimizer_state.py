"""Another optimizer for a while, and what each would keep."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras.optimizers import SGD, Adam, AdamW, LossScaleOptimizer, Nadam, RMSprop, ScheduleFreeAdamW

from memfit.errors import InputError
from memfit.techniques import optimizer_state

X, Y = np.random.default_rng(0).normal(size=(16, 6)).astype("float32"), np.ones((16, 3), "float32")


def compiled(optimizer):
    keras.utils.set_random_seed(0)
    stack = [layers.Dense(8, "relu"), layers.Reshape((2, 4)), layers.Conv1D(5, 2), layers.Flatten(), layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *stack], name="stack")
    model.compile(optimizer, "mse")
    return model


def fit(model, **options):
    return model.fit(X, Y, batch_size=8, verbose=0, shuffle=False, **options).history["loss"]


def held(optimizer):
    return sum(tf.convert_to_tensor(each).numpy().nbytes for each in optimizer.variables)


@pytest.mark.parametrize("name", ["sgd", "lion", "adafactor", "adamw", "rmsprop", "Nadam"])
def test_training_goes_on_with_the_other_optimizer(name):
    model = compiled(Adam(0.01))
    verdict = optimizer_state.check(model, name)
    assert verdict.grade == "any"
    assert f"{name.lower()} instead of adam" in verdict.why
    with optimizer_state.applied(model, name):
        assert type(model.optimizer) is type(keras.optimizers.get(name))
        losses = fit(model, epochs=3)
    assert losses[-1] < losses[0]


def stop():
    raise KeyboardInterrupt


@pytest.mark.parametrize("leave", [lambda: None, stop])
def test_the_own_optimizer_comes_back_with_its_state(leave):
    twin, model = compiled(Adam(0.01)), compiled(Adam(0.01))
    for each in (twin, model):
        fit(each)
    own, start = model.optimizer, [each.numpy() for each in model.variables]
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: leave())
    try:
        with optimizer_state.applied(model, "sgd"):
            fit(model, callbacks=[callback])
    except KeyboardInterrupt:
        pass
    assert model.optimizer is own
    assert model.train_function is None
    for variable, number in zip(model.variables, start, strict=True):
        variable.assign(number)
    assert fit(model, epochs=2) == fit(twin, epochs=2)


def test_a_checkpoint_made_inside_is_loaded_with_its_optimizer_state(tmp_path):
    model = compiled(Adam(0.01))
    before = model.get_compile_config()
    with optimizer_state.applied(model, "lion"):
        fit(model)
        model.save(tmp_path / "inside.keras")
        saved = [each.numpy() for each in model.optimizer.variables]
    loaded = keras.saving.load_model(tmp_path / "inside.keras")
    assert all(map(np.array_equal, [each.numpy() for each in loaded.optimizer.variables], saved))
    assert model.get_compile_config() == before


def test_settings_carry_over_where_the_new_one_has_them():
    own = AdamW(
        0.25, weight_decay=0.125, global_clipnorm=2.0, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=7
    )
    own.exclude_from_weight_decay(var_names=["bias"])
    model = compiled(own)
    with optimizer_state.applied(model, "lion"):
        config = model.optimizer.get_config()
        assert not model.optimizer._use_weight_decay(model.layers[0].bias)
        assert model.optimizer._use_weight_decay(model.layers[0].kernel)
    assert {name: config[name] for name in own.get_config() if name in optimizer_state._SETTINGS} == {
        "weight_decay": 0.125,
        "clipnorm": None,
        "clipvalue": None,
        "global_clipnorm": 2.0,
        "use_ema": True,
        "ema_momentum": 0.5,
        "ema_overwrite_frequency": 7,
        "loss_scale_factor": None,
        "gradient_accumulation_steps": None,
    }
    assert config["learning_rate"] == 0.25


def test_a_schedule_goes_on_from_where_it_was():
    schedule = keras.optimizers.schedules.PolynomialDecay(1.0, 10, end_learning_rate=0.0)
    model = compiled(SGD(schedule))
    with optimizer_state.applied(model, "rmsprop"):
        assert model.optimizer._learning_rate is schedule
    fit(model)  # two steps
    with optimizer_state.applied(model, "rmsprop"):
        assert float(model.optimizer.learning_rate) == pytest.approx(0.8)
        fit(model)
        assert float(model.optimizer.learning_rate) == pytest.approx(0.6)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.8)


def test_a_scaled_loss_stays_scaled():
    model = compiled(LossScaleOptimizer(Adam(0.01), initial_scale=8.0, dynamic_growth_steps=5))
    with optimizer_state.applied(model, "sgd"):
        assert isinstance(model.optimizer, LossScaleOptimizer)
        assert (model.optimizer.initial_scale, model.optimizer.dynamic_growth_steps) == (8.0, 5)
        assert type(model.optimizer.inner_optimizer) is SGD
        assert float(model.optimizer.learning_rate) == pytest.approx(0.01)


@pytest.mark.parametrize("value", ["addam", "", None, Adam, "lossscaleoptimizer"])
def test_what_is_no_optimizer_is_refused_with_those_there_are(value):
    with pytest.raises(InputError, match=r"adafactor, .*adam, .*sgd; got"):
        optimizer_state.check(compiled("sgd"), value)


def test_several_optimizers_have_no_one_learning_rate():
    kinds = keras.optimizers
    several = kinds.MultiOptimizer(kinds.OptimizerMap(SGD(), {"dense": Adam()}))
    with pytest.raises(InputError, match="MultiOptimizer"):
        optimizer_state.check(compiled(several), "sgd")


OWN = {
    "sgd": lambda **options: SGD(0.1, **options),
    "scaled": lambda **options: LossScaleOptimizer(Adam(0.1, **options)),
    "amsgrad": lambda **options: Adam(0.1, amsgrad=True, **options),
    "centered": lambda **options: RMSprop(0.1, momentum=0.5, centered=True, **options),
    "nadam": lambda **options: Nadam(0.1, **options),
    "schedule free": lambda **options: ScheduleFreeAdamW(0.1, **options),
}


@pytest.mark.parametrize("own", OWN)
def test_every_cost_is_what_the_optimizer_takes_once_built(own):
    model = compiled(OWN[own]())
    found = {each.name: each for each in optimizer_state.costs(model)}
    assert not model.optimizer.built
    for cost in list(found.values())[:7]:
        kind, _, momentum = cost.name.partition(" with ")
        real = SGD(momentum=0.9) if momentum else keras.optimizers.get(kind)
        real = LossScaleOptimizer(real) if own == "scaled" else real
        real.build(model.trainable_variables)
        assert found.pop(cost.name).state_bytes == held(real), cost.name
    for cost, options in zip(found.values(), ({"use_ema": True}, {"gradient_accumulation_steps": 2}), strict=True):
        real = OWN[own](**options)
        real.build(model.trainable_variables)
        assert cost.state_bytes == held(real), cost.name
        assert cost.per_parameter == cost.state_bytes / model.count_params()


def test_costs_are_as_applied_would_make_them():
    model = compiled(SGD(0.1, use_ema=True))
    fit(model)
    costs = {each.name: each.state_bytes for each in optimizer_state.costs(model)}
    assert costs["sgd with EMA"] == held(model.optimizer)
    with optimizer_state.applied(model, "adam"):
        fit(model)
        assert costs["adam"] == held(model.optimizer)


def test_factored_states_of_keras_are_larger_than_whole_ones():
    """Adafactor in Keras keeps whole velocities beside the factored ones; people choose it to save memory."""
    costs = {each.name: each.state_bytes for each in optimizer_state.costs(compiled("adam"))}
    assert costs["rmsprop"] < costs["adafactor"] < costs["adam"]


def test_an_optimizer_that_cannot_be_copied_is_named():
    class Own(Adam):
        def get_config(self):
            return {"secret": 1}

    with pytest.raises(InputError, match=r"Own.*get_config"):
        optimizer_state.costs(compiled(Own()))


def test_counting_allocates_nothing_of_that_size(run_child):
    grown, state = run_child(
        """
        import keras
        from memfit.techniques.optimizer_state import costs

        def model(width):
            made = keras.Sequential([keras.Input((width,)), keras.layers.Dense(width, kernel_initializer="zeros")])
            made.compile("adam", "mse")
            return made

        def peak():
            return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

        costs(model(8))
        large = model(4096)
        before = peak()
        found = costs(large)
        report([peak() - before, min(each.state_bytes for each in found if each.name != "sgd")])
        """
    )
    assert state > 64 * 2**20
    assert grown < state / 8
