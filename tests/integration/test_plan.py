"""Plans that are made, saved, applied and run."""

import math

import keras
import numpy
import pytest
from keras import layers

import memfit
from memfit.errors import BudgetTooSmallError, InputError


def residual(blocks=10):
    inputs = tensor = keras.Input((32, 32, 3))
    tensor = layers.Conv2D(16, 3, padding="same")(tensor)
    for _ in range(blocks):
        branch = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same")(tensor)))
        branch = layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same")(branch))
        tensor = layers.Dropout(0.1)(layers.ReLU()(layers.Add()([tensor, branch])))
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(tensor)), name="residual")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def planner():
    return memfit.Planner(residual(), 32, gpu="RTX 3060", jit=False)


def budget(planner, share):
    return int(planner.plain.limited(2**40).value * share)


def test_a_plan_fits_what_it_was_given(planner):
    plan = planner.plan(budget(planner, 0.5))
    assert plan.feasible
    assert plan.prediction.verified == "traced"
    assert plan.prediction.grade == "exact"
    assert plan.prediction.peak.high <= budget(planner, 0.5)
    with memfit.applied(planner.model, plan):
        planned = memfit.estimate(planner.model, 32, gpu="RTX 3060", jit=False)
        assert planned.fits(budget(planner, 0.5))
    assert not planner.plain.fits(budget(planner, 0.5))


@pytest.mark.slow
def test_less_memory_is_never_faster(planner):
    plans = [planner.plan(budget(planner, share)) for share in (1.2, 0.8, 0.65, 0.5)]
    slowdowns = [plan.prediction.slowdown for plan in plans]
    peaks = [plan.prediction.peak.value for plan in plans]
    assert slowdowns == sorted(slowdowns)
    assert peaks == sorted(peaks, reverse=True)


def test_a_plan_says_what_it_changes_and_what_it_tried(planner):
    plan = planner.plan(budget(planner, 0.5))
    assert [part.technique for part in plan.prediction.parts] == list(plan.techniques)[::-1]
    assert {each.what for each in plan.prediction.rejected} >= {"nothing changed"}
    text = str(plan)
    assert "residual, batch 32" in text
    assert "remat" in text
    assert max(map(len, text.splitlines())) <= 100
    assert plan._repr_html_().startswith("<div>")


def test_a_saved_plan_trains_the_model(planner, tmp_path):
    planner.plan(budget(planner, 0.5)).save(tmp_path / "plan.json")
    plan = memfit.Plan.load(tmp_path / "plan.json")
    assert plan.prediction is not None
    x, y = numpy.zeros((64, 32, 32, 3), "float32"), numpy.zeros(64, "int32")
    history = memfit.fit(planner.model, x, y, batch_size=32, verbose=0, plan=plan)
    assert len(history.history["loss"]) == 1


def test_a_plan_for_another_model_is_refused(planner):
    with pytest.raises(InputError, match="made for the model"):
        memfit.fit(residual(2), numpy.zeros((2, 32, 32, 3)), numpy.zeros(2), plan=planner.plan(budget(planner, 0.5)))


@pytest.mark.slow
def test_what_cannot_fit_is_said_with_what_would(planner):
    plan = planner.plan("1MiB")
    assert plan.feasible is False
    assert plan.techniques == {}
    needs = plan.prediction.smallest_budgets
    assert needs["exact"] > needs["close"] >= needs["any"] > 2**20
    assert plan.prediction.largest_batch == 0
    assert "does not fit" in str(plan)
    with pytest.raises(BudgetTooSmallError, match=r"no way was found.*numerics=\"close\""):
        memfit.fit(planner.model, numpy.zeros((2, 32, 32, 3)), numpy.zeros(2), plan=plan)


@pytest.mark.slow
def test_the_smallest_budget_said_is_one_that_fits(planner):
    needs = planner.plan("1MiB").prediction.smallest_budgets
    assert planner.plan(int(needs["exact"] * 1.03)).feasible


@pytest.mark.slow
def test_close_may_work_on_slices_and_in_half_precision(planner):
    plan = planner.plan(budget(planner, 0.25), numerics="close")
    assert plan.feasible
    assert plan.prediction.grade == "close"
    assert plan.techniques.keys() & {"micro_batch", "precision"}


def test_a_model_of_its_own_is_planned_in_slices():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.stack = [layers.Dense(512, activation="relu") for _ in range(6)]

        def call(self, inputs):
            for layer in self.stack:
                inputs = layer(inputs)
            return inputs

    model = Own()
    model(numpy.zeros((1, 512), "float32"))
    model.compile("sgd", "mse", jit_compile=False)
    data = (numpy.zeros((4, 512), "float32"), numpy.zeros((4, 512), "float32"))
    planner = memfit.Planner(model, 8192, gpu="RTX 3060", jit=False, data=data)
    plan = planner.plan(budget(planner, 0.6))
    assert plan.feasible
    assert plan.techniques.keys() == {"micro_batch"}
    assert any(each.what == "remat" for each in plan.prediction.rejected)


def test_the_sweep_goes_from_fast_to_small(planner):
    points = planner.sweep().points
    assert len(points) >= 3
    assert [point.slowdown for point in points] == sorted(point.slowdown for point in points)
    assert [point.budget for point in points] == sorted((point.budget for point in points), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"numerics": "exactly"}, "numerics='exactly'"),
        ({"verify": "hope"}, "verify='hope'"),
        ({"budget": "lots"}, "lots"),
    ],
)
def test_bad_arguments_are_refused(planner, arguments, message):
    with pytest.raises(InputError, match=message):
        planner.plan(**{"budget": "1GiB", **arguments})


@pytest.mark.parametrize("batch_size", [0, -1, 1.5])
def test_a_batch_that_is_none_is_refused(batch_size):
    with pytest.raises(InputError, match="batch_size"):
        memfit.plan(residual(2), batch_size, "1GiB")


def test_a_batch_of_one_that_does_not_fit_is_an_answer():
    plan = memfit.plan(residual(2), 1, "100KiB", gpu="RTX 3060", jit=False)
    assert plan.feasible is False
    assert plan.prediction.largest_batch == 0


@pytest.mark.slow
def test_a_plan_is_run_under_a_real_limit():
    batch, shape = 32, (32, 32, 3)
    planner = memfit.Planner(residual(), batch, gpu="cpu", jit=False, resident=4 * batch * math.prod(shape))
    plan = planner.plan(budget(planner, 0.75), verify="measure")
    assert plan.feasible
    assert plan.prediction.verified == "measured"
    assert plan.prediction.measured_peak <= plan.prediction.budget < planner.plain.steady_peak.low


@pytest.mark.slow
def test_a_likely_plan_needs_less_than_one_that_is_certain_to_fit():
    """A CPU runs a step in another order each time, and `plan` leaves room for all of them."""
    planner = memfit.Planner(residual(), 32, gpu="cpu", jit=False)
    certain = planner.plan("1MiB").prediction.smallest_budgets["exact"]
    assert planner.plan(certain).feasible
    less = int(0.9 * certain)
    assert not planner.plan(less).feasible
    likely = planner.likely(less)
    assert likely.feasible
    assert likely.techniques
    assert likely.prediction.peak.value <= less
