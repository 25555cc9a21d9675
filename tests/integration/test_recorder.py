"""`memfit.Recorder` in real trainings, on the CPU's BFC allocator: the one a GPU has."""

import json
import textwrap
from itertools import pairwise

import pytest

from memfit.observe.record import read_record
from memfit.units import MIB

BFC = {"TF_CPU_ALLOCATOR_USE_BFC": "1"}
PRELUDE = """
import keras, numpy as np, tensorflow as tf
from keras import layers
import memfit

def cnn(**settings):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, activation="relu", name="first")(inputs)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.Conv2D(32, 3, activation="relu", name="second")(x)
    model = keras.Model(inputs, layers.Dense(10, name="head")(layers.GlobalAveragePooling2D()(x)), name="net")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": "adam", "loss": loss, "jit_compile": False, **settings})
    return model

x = np.random.default_rng(0).random((72, 32, 32, 3), "float32")
y = np.random.default_rng(1).integers(0, 10, 72)
recorder = memfit.Recorder(PATH)
"""


@pytest.fixture
def record(run_child, tmp_path):
    """Run code with a recorder at hand; what it recorded, and what it reported."""

    def run(code, **environment):
        path = tmp_path / "run.memfit.jsonl"
        reported = run_child(
            f"PATH = {str(path)!r}\n{PRELUDE}{textwrap.dedent(code)}\nif not reported: report(None)\n".replace(
                "import keras", "reported = False\nimport keras", 1
            ),
            **environment,
        )
        return read_record(path), reported

    return run


def phase(lines, name):
    return [line for line in lines if line.phase == name]


def test_a_fit_with_validation_then_evaluate_then_predict(record):
    recorded, _ = record(
        """
        model = cnn()
        model.fit(x, y, batch_size=16, epochs=2, validation_data=(x[:20], y[:20]), verbose=0, callbacks=[recorder])
        model.evaluate(x, y, batch_size=24, verbose=0, callbacks=[recorder])
        model.predict(x, batch_size=32, verbose=0, callbacks=[recorder])
        """,
        **BFC,
    )
    train, validation, predict = (phase(recorded.steps, name) for name in ("train", "validation", "predict"))
    assert [(line.epoch, line.first) for line in train] == [(1 + n // 5, n + 1) for n in range(10)]
    assert [(line.epoch, line.first) for line in validation] == [
        (1, 1),
        (1, 2),
        (2, 3),
        (2, 4),
        *((None, n) for n in (5, 6, 7)),
    ]
    assert [line.first for line in predict] == [1, 2, 3]
    # An activation of the first convolution is 16 x 30 x 30 x 16 floats.
    assert all(line.peak_bytes > line.in_use_bytes + 16 * 30 * 30 * 16 * 4 for line in train[1:-1])
    assert all(line.in_use_bytes >= line.least_in_use_bytes > 0 for line in recorded.steps)
    assert all(0 < line.seconds <= line.slowest_seconds and line.host_bytes > 100 * MIB for line in recorded.steps)
    assert max(line.peak_bytes for line in train[1:]) > max(line.peak_bytes for line in validation[:4])

    epochs = [(line.phase, line.epoch, line.steps) for line in recorded.epochs]
    assert epochs == [
        ("validation", 1, 2), ("train", 1, 5), ("validation", 2, 2), ("train", 2, 5), ("validation", None, 3),
        ("predict", None, 3),
    ]  # fmt: skip
    for line in phase(recorded.epochs, "train"):
        mine = [step for step in train if step.epoch == line.epoch]
        assert line.peak_bytes == max(step.peak_bytes for step in mine)
        assert 0.5 * line.seconds < sum(step.seconds for step in mine) <= line.seconds
    assert recorded.epochs[1].logs.keys() == {"loss", "val_loss"}

    assert (recorded.run.device, recorded.run.limit_bytes, recorded.run.memfit_record) == ("CPU:0", None, 1)
    (model,) = recorded.models
    assert (model.model, model.batch_size, model.regime) == ("net", 16, "graph")
    assert model.parameters > 5000
    assert (recorded.end.outcome, recorded.broken_lines, recorded.cut) == ("finished", 0, False)


def test_a_profiled_step_shows_layers_parts_and_what_holds_the_peak(record):
    recorded, _ = record("cnn().fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=[recorder])", **BFC)
    (timeline,) = recorded.timelines
    (step,) = (line for line in recorded.steps if line.first == timeline.step)
    assert (timeline.phase, timeline.step) == ("train", 4)
    assert timeline.peak_bytes == pytest.approx(step.peak_bytes, rel=0.02)
    assert {"first", "norm", "second", "head"} <= {name.layer for name in timeline.names}
    assert {"forward", "backward", "update"} <= {name.part for name in timeline.names}
    assert any("Conv2DBackpropFilter" in name.op_type for name in timeline.names)
    assert max(point[1] for point in timeline.points) == timeline.peak_bytes
    assert sum(tensor.bytes for tensor in timeline.at_peak) == timeline.peak_bytes
    kinds = {tensor.kind for tensor in timeline.at_peak}
    assert {"activations", "gradients", "variables"} <= kinds
    relu = next(tensor for tensor in timeline.at_peak if tensor.layer == "first" and tensor.kind == "activations")
    assert (relu.shape, relu.dtype) == ((16, 30, 30, 16), "float32")
    state = [tensor for tensor in timeline.at_peak if tensor.layer == "second" and tensor.kind == "variables"]
    assert sum(tensor.bytes for tensor in state) == 3 * (3 * 3 * 16 * 32 + 32) * 4, "weights and Adam's two moments"


def test_without_statistics_the_bytes_are_unknown_and_not_zero(record):
    recorded, _ = record("cnn().fit(x, y, batch_size=16, verbose=0, callbacks=[recorder])", TF_ENABLE_ONEDNN_OPTS="0")
    assert len(recorded.steps) == 5
    for line in recorded.steps:
        assert (line.in_use_bytes, line.least_in_use_bytes, line.peak_bytes) == (None, None, None)
        assert line.seconds > 0
    assert recorded.epochs[0].peak_bytes is None


def test_retraces_are_noticed_with_their_reason(record):
    recorded, _ = record(
        """
        def batches(size):
            return tf.data.Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder=True)
        model = cnn()
        model.predict(x, batch_size=32, verbose=0, callbacks=[recorder])
        for size in (24, 12):
            model.fit(batches(size), verbose=0, callbacks=[recorder])
        model.compile("sgd", "sparse_categorical_crossentropy")
        model.fit(batches(12), verbose=0, callbacks=[recorder])
        """
    )
    seen = [(line.phase, line.step, line.function) for line in recorded.retraces]
    assert seen == [("predict", 3, "predict_function"), ("train", 4, "train_function"), ("train", 10, "train_function")]
    partial, other_batch, compiled = (line.reason for line in recorded.retraces)
    assert partial == "x changed from float32 (32, 32, 32, 3) to float32 (8, 32, 32, 3)"
    assert other_batch.startswith("x changed from float32 (24, 32, 32, 3) to float32 (12, 32, 32, 3); y changed")
    assert "compile() was called again" in compiled
    assert [line.count for line in phase(recorded.retraces, "train")] == [1, 2]


@pytest.mark.parametrize("data", ["x, y, batch_size=8", "unknown()"])
def test_steps_per_execution_are_counted_as_steps(record, data):
    recorded, _ = record(
        f"""
        def unknown():
            batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
            return batches.filter(lambda *_: True)  # nobody knows how many are left
        import warnings
        warnings.simplefilter("ignore")
        model = cnn(steps_per_execution=4)
        model.fit({data}, epochs=2, verbose=0, validation_data=(x[:40], y[:40]), callbacks=[recorder])
        """
    )
    train, validation = phase(recorded.steps, "train"), phase(recorded.steps, "validation")
    assert [(line.first, line.count) for line in train] == [(1, 4), (5, 4), (9, 1), (10, 4), (14, 4), (18, 1)]
    assert sum(line.count for line in validation) == (4 if "unknown" in data else 10)
    assert [line.steps for line in phase(recorded.epochs, "train")] == [9, 9]


@pytest.mark.slow
def test_a_generator_that_ends_leaves_no_step_that_did_not_run(record):
    recorded, _ = record(
        """
        import warnings
        warnings.simplefilter("ignore")
        cnn().fit(((x[:8], y[:8]) for _ in range(5)), verbose=0, callbacks=[recorder])
        """
    )
    assert [line.first for line in recorded.steps] == [1, 2, 3, 4, 5]
    assert recorded.epochs[0].steps == 5


def test_the_result_is_the_same(record):
    _, same = record(
        """
        losses, weights = [], []
        for callbacks in ([], [recorder]):
            model = cnn()
            losses.append(model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=callbacks).history["loss"])
            weights.append([value.tobytes() for value in model.get_weights()])
        reported = True
        report(losses[0] == losses[1] and weights[0] == weights[1])
        """,
        TF_NUM_INTRAOP_THREADS="1",
        TF_NUM_INTEROP_THREADS="1",
    )
    assert same, "recording changed what was trained"


@pytest.mark.slow
def test_it_is_a_callback_that_keeps_no_model_alive(record):
    recorded, (is_callback, is_recorder, alive) = record(
        """
        import gc, weakref
        kinds = [isinstance(recorder, keras.callbacks.Callback), isinstance(recorder, memfit.Recorder)]
        model = cnn()
        model.fit(x, y, batch_size=16, verbose=0, callbacks=[recorder])
        watched = weakref.ref(model)
        del model, recorder
        gc.collect()
        reported = True
        report([*kinds, watched() is not None])
        """
    )
    assert (is_callback, is_recorder, alive) == (True, True, False)
    assert recorded.end.outcome == "finished", "a recorder nobody holds has ended its record"


def test_a_step_that_fails_is_an_end_that_says_so(record):
    recorded, _ = record(
        """
        class Fails(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if batch == 3: raise ValueError("mine")
        reported = True
        report(None)
        import sys
        sys.stderr = open("/dev/null", "w")
        import os, atexit
        atexit.register(os._exit, 0)  # the exit code is not what is tested
        cnn().fit(x, y, batch_size=8, verbose=0, callbacks=[recorder, Fails()])
        """,
        **BFC,
    )
    # The fourth ended nowhere: not in a fifth, and not in an epoch's end.
    assert [line.first for line in recorded.steps] == [1, 2, 3]
    assert (recorded.end.outcome, recorded.end.error) == ("failed", "ValueError: mine")


@pytest.mark.slow
def test_unusual_models_and_other_callbacks(run_child, tmp_path):
    counts = run_child(
        f"""
        import warnings
        warnings.simplefilter("ignore")
        import keras, numpy as np, tensorflow as tf
        from keras import layers
        import memfit
        from memfit.observe.record import read_record

        x, y = np.ones((40, 8), "float32"), np.zeros((40,), "int32")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def small(*compiled, built=True, **settings):
            inputs = [keras.Input((8,))] if built else []
            model = keras.Sequential([*inputs, layers.Dense(4), layers.Dense(3)])
            if compiled: model.compile(*compiled, jit_compile=False, **settings)
            return model

        def count(use):
            recorder = memfit.Recorder({str(tmp_path)!r})
            use(recorder)
            recorder.close()
            record = read_record(recorder.path)
            return [sum(line.count for line in record.steps), len(record.timelines), record.end.outcome]

        def fit(model, *callbacks):
            model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)

        class Stops(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None): self.model.stop_training = batch == 2

        class Fails(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                if batch == 3: raise KeyError("once")

        def failed_and_again(recorder):
            model = small("adam", loss)
            try: fit(model, recorder, Fails())
            except KeyError: pass
            fit(model, recorder)

        def closed_early(recorder):
            close = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: recorder.close("finished"))
            fit(small("adam", loss), recorder, close)

        class Profiles(keras.callbacks.Callback):
            # As TensorBoard's callback does.
            def on_train_begin(self, logs=None): tf.profiler.experimental.start({str(tmp_path / "theirs")!r})
            def on_train_end(self, logs=None): tf.profiler.experimental.stop()

        report({{
            "not compiled": count(lambda recorder: small().predict(x, batch_size=8, verbose=0, callbacks=[recorder])),
            "eager": count(lambda recorder: fit(small("adam", loss, run_eagerly=True), recorder)),
            "not built": count(lambda recorder: fit(small("adam", loss, built=False), recorder)),
            "stopped": count(lambda recorder: fit(small("adam", loss), recorder, Stops())),
            "failed and again": count(failed_and_again),
            "profiled by another": count(lambda recorder: fit(small("adam", loss), Profiles(), recorder)),
            "closed early": count(closed_early),
            "planned": count(lambda recorder: memfit.fit(small("adam", loss), x, y, batch_size=8, verbose=0,
                             plan=memfit.Plan(micro_batch=2), callbacks=[recorder])),
        }})
        """,
        **BFC,
    )
    assert counts == {
        "not compiled": [5, 1, "finished"],
        "eager": [5, 1, "finished"],
        "not built": [5, 1, "finished"],
        "stopped": [3, 0, "finished"],
        # The step that was to be profiled never came; later ones of this number did.
        "failed and again": [8, 1, "finished"],
        "profiled by another": [5, 0, "finished"],
        "closed early": [1, 0, "finished"],
        "planned": [5, 1, "finished"],
    }


def test_bad_arguments_are_refused_before_anything_runs(run_child, tmp_path):
    (tmp_path / "there.memfit.jsonl").touch()
    said = run_child(
        f"""
        import sys, memfit
        def error(*arguments, **settings):
            try:
                memfit.Recorder(*arguments, **settings)
            except memfit.MemfitError as problem:
                return str(problem)
        folder = {str(tmp_path)!r}
        report([
            error(folder + "/there.memfit.jsonl"),
            error(folder + "/nowhere/run.memfit.jsonl"),
            error(folder, profile_steps=(0,)),
            error(folder, profile_steps="first"),
            error(folder, profile_steps=-1),
        ])
        """
    )
    assert "exists already" in said[0]
    assert "no folder" in said[1]
    assert "counted from 1, such as (4, 100); got 0" in said[2]
    assert "got 'first'" in said[3]
    assert "got -1" in said[4]
    assert json.dumps(sorted(path.name for path in tmp_path.iterdir())) == '["report", "there.memfit.jsonl"]'


@pytest.mark.slow
def test_a_compiled_step_is_recorded_too(record):
    recorded, _ = record(
        "cnn(jit_compile=True).fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[recorder])", **BFC
    )
    assert recorded.models[0].regime == "xla"
    assert len(recorded.steps) == 9
    (timeline,) = recorded.timelines
    assert timeline.at_peak[0].op == "the step compiled by XLA"


def test_steps_that_are_short_are_taken_together_and_none_is_lost(record):
    recorded, _ = record(
        """
        class Stop(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None): self.model.stop_training = batch == 397
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        data = np.zeros((4000, 8)), np.zeros((4000, 1))
        for stop in ([], [Stop()]):
            model.fit(*data, batch_size=8, epochs=1, verbose=0, callbacks=[recorder, *stop])
        """,
        **BFC,
    )
    assert [line.steps for line in recorded.epochs] == [500, 398]
    train = phase(recorded.steps, "train")
    assert [line.count for line in train[:10]] == [1] * 10
    assert sum(line.count for line in train) == 898
    for before, after in pairwise(train):
        assert after.first == before.first + before.count
