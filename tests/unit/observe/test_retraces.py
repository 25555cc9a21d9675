"""Which retraces are noticed, and what is said to be their reason."""

from types import SimpleNamespace

import pytest

from memfit.observe import feed
from memfit.observe.retraces import RetraceWatch


class Function:
    def __init__(self, traces=0):
        self.traces = traces

    def experimental_get_tracing_count(self):
        return self.traces


class Model:
    """What Keras leaves on a model: a traced function, in a plain one that closes over it."""

    def __init__(self):
        self.make()

    def make(self, traces=0):
        traced = self.traced = Function(traces)
        self.train_function = lambda iterator: traced(iterator)
        self.predict_function = Function()
        self.test_function = None


@pytest.fixture
def fed(monkeypatch):
    """Set what Keras feeds."""
    now = {}
    monkeypatch.setattr(feed, "signature", lambda: dict(now))

    def feed_with(**arguments):
        now.clear()
        now.update({name: SimpleNamespace(dtype=dtype, shape=shape) for name, (dtype, shape) in arguments.items()})

    return feed_with


def test_the_first_trace_is_no_retrace_and_the_next_says_what_changed(fed):
    watch, model = RetraceWatch(), Model()
    fed(x=("float32", (32, 8)), y=("int64", (32,)))
    assert watch.look(model, "train") is None
    model.traced.traces = 2  # Keras traces twice where variables are made
    assert watch.look(model, "train") is None
    assert watch.look(model, "train") is None
    fed(x=("float32", (8, 8)), y=("int64", (8,)))
    model.traced.traces = 3
    noticed = watch.look(model, "train")
    assert noticed.function == "train_function"
    assert (
        noticed.reason == "x changed from float32 (32, 8) to float32 (8, 8); y changed from int64 (32,) to int64 (8,)"
    )
    assert noticed.count == 1


def test_what_was_traced_before_the_recording_is_not_counted(fed):
    watch, model = RetraceWatch(), Model()
    model.make(traces=5)
    assert watch.look(model, "train") is None
    model.traced.traces = 6
    assert watch.look(model, "train").count == 1


def test_a_function_made_anew_says_so(fed):
    watch, model = RetraceWatch(), Model()
    model.traced.traces = 1
    assert watch.look(model, "train") is None
    model.make()
    assert watch.look(model, "train") is None, "it is not traced yet"
    model.traced.traces = 1
    assert "compile() was called again" in watch.look(model, "train").reason


def test_arguments_that_come_and_go_are_named(fed):
    watch, model = RetraceWatch(), Model()
    fed(x=("float32", (4,)), y=("float32", (4,)))
    model.predict_function.traces = 1
    watch.look(model, "predict")
    fed(x=("float32", (4,)), sample_weight=("float32", (4,)))
    model.predict_function.traces = 2
    reason = watch.look(model, "predict").reason
    assert reason == "sample_weight is new: float32 (4,); y is gone, it was float32 (4,)"


def test_no_difference_is_not_made_up(fed):
    watch, model = RetraceWatch(), Model()
    fed(x=("float32", (4,)))
    for traces in (1, 2):
        model.predict_function.traces = traces
        noticed = watch.look(model, "predict")
    assert "shapes and types are as before" in noticed.reason


def test_steps_that_run_eagerly_are_never_traced():
    watch, model = RetraceWatch(), Model()
    assert watch.look(model, "validation") is None
    model.test_function = lambda iterator: iterator
    assert watch.look(model, "validation") is None
