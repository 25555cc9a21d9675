"""Training steps of users' own: estimated without being run, and noticed in scripts."""

import functools
import json
import random

import numpy as np
import pytest

import memfit
from memfit.errors import InputError
from memfit.script.own_loop import watch_own_loops
from memfit.trace.function import TraceError

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
layers = keras.layers

X, Y = np.zeros((32, 8), "float32"), np.zeros((32, 1), "float32")


class Loop:
    """A model, an optimizer and a step, as in Keras's guide to loops from scratch."""

    def __init__(self, optimizer="adam"):
        self.model = keras.Sequential(
            [keras.Input((8,)), layers.Dense(64, name="wide"), layers.BatchNormalization(), layers.Dense(1)]
        )
        self.optimizer = keras.optimizers.get(optimizer)
        self.metric = keras.metrics.MeanSquaredError()

    def step(self, x, y):
        with tf.GradientTape() as tape:
            predicted = self.model(x, training=True)
            loss = tf.reduce_mean((y - predicted) ** 2)
        weights = self.model.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.metric.update_state(y, predicted)
        return loss


def estimated(step, batch_size=None, data=(X, Y), **options):
    return memfit.estimate(step, batch_size, data=data, **{"gpu": "RTX 3060", **options})


@pytest.fixture(scope="module")
def loop():
    return Loop()


@pytest.fixture(scope="module")
def estimate(loop):
    return estimated(tf.function(loop.step), 64)


def test_nothing_is_trained_and_the_step_still_runs():
    own = Loop()
    before = [variable.numpy() for variable in own.model.variables]
    step = tf.function(own.step)
    estimated(step)
    assert all((old == new.numpy()).all() for old, new in zip(before, own.model.variables, strict=True))
    assert own.optimizer.iterations.numpy() == 0
    assert step.experimental_get_tracing_count() == 0
    step(X, Y)
    assert own.optimizer.iterations.numpy() == 1


def test_variables_have_their_kinds(estimate):
    kinds = {variable.name: variable.kind for variable in estimate.step.variables}
    assert sum(kind == "parameter" for kind in kinds.values()) == 6
    assert sum(kind == "state" for kind in kinds.values()) == 2
    assert sum(kind == "optimizer" for kind in kinds.values()) == 6 * 2 + 2
    assert estimate.breakdown()["optimizer_state"] > 2 * 6 * 4


def test_layers_and_parts_are_named(estimate):
    assert "wide" in estimate.composition.by_layer()
    assert {moment.part for moment in estimate.composition.timeline} == {"forward", "backward", "update"}
    assert estimate.unknown_ops == ()


def test_it_answers_like_a_models_estimate(estimate):
    assert estimate.batch_size == 64
    assert estimate.model_name == "step"
    assert list(estimate.phases) == ["train"]
    assert estimate.at(4096).steady_peak.value > 10 * estimate.steady_peak.value
    largest = estimate.max_batch("64MiB")
    assert estimate.at(largest).fits("64MiB")
    assert not estimate.at(2 * largest).fits("64MiB")
    assert json.loads(json.dumps(estimate.to_dict()))["regime"] == "graph"
    assert "step, batch 64" in str(estimate)


def test_the_peak_is_near_that_of_fit():
    own = Loop()
    own.model.compile("adam", "mse")
    by_fit = memfit.estimate(own.model, 512, gpu="RTX 3060", jit=False).steady_peak.value
    assert estimated(own.step, 512).steady_peak.value == pytest.approx(by_fit, rel=0.1)


def test_the_batch_of_the_example_is_the_default(loop):
    assert estimated(loop.step).batch_size == 32


def test_a_compiled_function_is_predicted_under_xla(loop):
    assert estimated(tf.function(loop.step, jit_compile=True)).regime == "xla"
    assert estimated(loop.step, jit=False).regime == "graph"


@pytest.mark.parametrize(
    "data",
    [
        {"x": X, "y": Y},
        (tf.TensorSpec((None, 8)), tf.TensorSpec((None, 1))),
        tf.data.Dataset.from_tensor_slices((X, Y)).batch(32),
        (tf.constant(X), Y.tolist()),
    ],
    ids=["names", "specs", "dataset", "tensors"],
)
def test_arguments_in_other_forms(loop, estimate, data):
    assert estimated(loop.step, 64, data=data).steady_peak.value == estimate.steady_peak.value


def test_a_batch_as_one_argument(loop, estimate):
    def step(batch):
        return loop.step(*batch)

    def step_of_names(batch):
        return loop.step(batch["image"], batch["label"])

    assert estimated(step, 64).steady_peak.value == estimate.steady_peak.value
    assert estimated(step_of_names, 64, data={"image": X, "label": Y}).steady_peak.value == estimate.steady_peak.value


def test_an_input_signature_is_enough(loop):
    signature = (tf.TensorSpec((None, 8)), tf.TensorSpec((None, 1)))
    step = tf.function(loop.step, input_signature=signature)
    assert memfit.estimate(step, 64, gpu="RTX 3060").batch_size == 64
    assert estimated(step, 64, data=(X.astype("float64"), Y)).at(8).batch_size == 8


def test_an_argument_without_a_batch_stays_as_it_is():
    weight = tf.Variable(tf.zeros((8, 64)))
    velocity = tf.Variable(tf.zeros((8, 64)))

    @tf.function
    def step(x, rate, table):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(x, weight) ** 2) + tf.reduce_sum(table)
        velocity.assign(0.9 * velocity + tape.gradient(loss, weight))
        weight.assign_sub(rate * velocity)
        return loss

    data = X, tf.constant(0.1), tf.zeros((1000, 10))
    estimate = estimated(step, data=data)
    shapes = {tuple(op.outputs[0].dimensions(64)) for op in estimate.step.ops if op.type == "IteratorGetNext"}
    assert shapes == {(64, 8), (), (1000, 10)}
    assert [variable.kind for variable in estimate.step.variables] == ["parameter", "optimizer"]


def test_variables_made_by_the_first_call():
    class Step:
        weight = None

        @tf.function
        def __call__(self, x):
            if self.weight is None:
                self.weight = tf.Variable(tf.ones((8, 4)))
            return tf.matmul(x, self.weight)

    step = Step()
    assert estimated(step.__call__, data=X).step.variables[0].bytes == 8 * 4 * 4
    assert step(X).shape == (32, 4)


def test_a_step_with_a_fixed_batch_inside(loop):
    def step(x, y):
        return loop.step(x + tf.random.normal((32, 8)), y)

    estimate = estimated(step)
    assert estimate.step.only_batch == 32
    with pytest.raises(InputError, match="fixed batch size inside"):
        estimate.max_batch("1GiB")
    with pytest.raises(TraceError, match="'step' cannot be traced at batch size 16"):
        _ = estimate.at(16).steady_peak


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, r"Pass example arguments: memfit.estimate\(step"),
        ((X, 3), r"argument 2 of 'step' is 3, a Python int.*tf.constant\(3\).*functools.partial"),
        ((tf.data.Dataset.range(3), Y), "argument 1 of 'step' is a tf.data.Dataset, not a tensor"),
        ((X, Y, Y), r"step\(x, y\) cannot be called with the example arguments: data= has 3"),
        ((tf.constant(1.0), tf.constant(2.0)), "no argument of 'step' has a batch dimension"),
        ((tf.TensorSpec((None, None)), Y), "unknown sizes"),
    ],
)
def test_arguments_that_cannot_be_used_are_explained(loop, data, says):
    with pytest.raises(InputError, match=says):
        estimated(loop.step, data=data)


def test_a_bound_python_argument(loop, estimate):
    def step(x, y, epoch):
        return loop.step(x, y) + epoch

    bound = estimated(functools.partial(step, epoch=3), 64)
    assert bound.model_name == "step"
    assert bound.steady_peak.value == pytest.approx(estimate.steady_peak.value, rel=0.1)


def test_a_step_that_cannot_be_a_graph_is_explained():
    def step(x):
        return x.numpy()

    with pytest.raises(TraceError, match=r"'step' cannot be traced at batch size 32: .*Check that it runs"):
        estimated(step, data=X)


@pytest.fixture
def told():
    """What a watch said; whatever it put on is off afterwards."""
    places = [(keras.optimizers.Optimizer, "apply"), (keras.optimizers.Optimizer, "apply_gradients")]
    places += [(tf.GradientTape, "gradient"), (type(tf.function(lambda: None)), "__call__")]
    before = [getattr(owner, name) for owner, name in places]
    sentences = []
    yield sentences
    assert [getattr(owner, name) for owner, name in places] == before


def test_a_loop_in_a_function_is_told_its_largest_batch(told):
    own = Loop()
    watch_own_loops(told.append, 2**26, in_fit=lambda: False)
    step, state = tf.function(own.step), random.getstate()
    for _ in range(3):
        step(X, Y)
    assert len(told) == 1
    assert "trains in its own loop, without model.fit" in told[0]
    assert "the predicted largest batch of step in 64 MiB is" in told[0]
    assert "this step has 32" in told[0]
    assert own.optimizer.iterations.numpy() == 3
    assert step.experimental_get_tracing_count() == 2  # TensorFlow's own: the first one creates variables
    assert random.getstate() == state


def test_a_loop_without_functions_is_told_once(told):
    own = Loop()
    watch_own_loops(told.append, 2**26, in_fit=lambda: False)
    own.step(X, Y)
    own.step(X, Y)
    assert len(told) == 1
    assert "largest batch" not in told[0]


@pytest.mark.parametrize("limit", [None, 2**26])
def test_what_cannot_be_predicted_is_left_out(told, limit):
    own = Loop()

    @tf.function
    def epoch(dataset):
        for x, y in dataset:
            own.step(x, y)

    watch_own_loops(told.append, limit, in_fit=lambda: False)
    epoch(tf.data.Dataset.from_tensors((X, Y)))
    assert len(told) == 1
    assert "largest batch" not in told[0]


def test_a_step_that_fails_is_told_and_fails_as_before(told):
    own = Loop()

    @tf.function
    def step(x, y):
        own.step(x, y)
        raise ValueError("mine")

    watch_own_loops(told.append, 2**26, in_fit=lambda: False)
    with pytest.raises(ValueError, match="mine"):
        step(X, Y)
    assert len(told) == 1


def test_fit_estimates_and_gradients_of_images_are_no_loop(told):
    own = Loop()
    own.model.compile("adam", "mse")
    inside = [True]
    watch_own_loops(told.append, 2**26, in_fit=lambda: inside[0])
    own.model.fit(X, Y, verbose=0)
    inside[0] = False
    estimated(own.step)
    memfit.estimate(own.model, 32, gpu="RTX 3060", jit=True)
    image = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(image)
        score = own.model(image)
    tape.gradient(score, image)
    assert told == []
    own.step(X, Y)
    assert len(told) == 1
