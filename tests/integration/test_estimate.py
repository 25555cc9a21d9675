"""The estimate as a user calls it, on small models. Accuracy against real GPUs is benchmarks/accuracy.py's work."""

import dataclasses
import json
import subprocess
import sys

import pytest

import memfit
from memfit.errors import InputError
from memfit.trace.function import TraceError
from memfit.trace.target import load_target
from memfit.trace.tracer import trace_step
from memfit.units import MIB

keras = pytest.importorskip("keras")
layers = keras.layers


def compiled(model, optimizer="adam", loss="sparse_categorical_crossentropy"):
    model.compile(optimizer, loss)
    return model


def small_cnn(**options):
    inputs = hidden = keras.Input((32, 32, 3))
    for filters in (16, 32):
        hidden = layers.Conv2D(filters, 3, padding="same", name=f"conv{filters}")(hidden)
        hidden = layers.BatchNormalization()(hidden)
        hidden = layers.ReLU()(hidden)
    outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(hidden))
    return compiled(keras.Model(inputs, outputs, name="small_cnn"), **options)


@pytest.fixture(scope="module")
def estimate():
    return memfit.estimate(small_cnn(), batch_size=64, gpu="RTX 3060", jit=False)


def test_the_kinds_add_up_and_activations_with_their_gradients_dominate(estimate):
    kinds = estimate.breakdown()
    assert sum(kinds.values()) == estimate.steady_peak.value
    assert kinds["activations"] + kinds["gradients"] > estimate.steady_peak.value / 2
    assert estimate.steady_peak.low < estimate.steady_peak.value < estimate.steady_peak.high


def test_every_operation_has_a_known_size(estimate):
    assert estimate.unknown_ops == ()


def test_layers_and_tensors_are_named(estimate):
    assert "conv32" in estimate.composition.by_layer()
    largest = estimate.largest(3)[0]
    assert largest["shape"][0] == 64
    assert largest["layer"]
    assert {moment.part for moment in estimate.composition.timeline} == {"forward", "backward", "update"}


def test_another_batch_size_needs_no_new_trace_and_scales(estimate):
    double = estimate.at(128)
    assert double.batch_size == 128
    assert 1.8 < double.steady_peak.value / estimate.steady_peak.value < 2.2


def test_the_largest_batch_fits_and_a_larger_one_does_not(estimate):
    largest = estimate.max_batch("256MiB")
    assert largest > 64
    assert estimate.at(largest).limited("256MiB") is not None
    assert estimate.at(largest + max(2, largest // 64)).limited("256MiB") is None
    assert estimate.max_batch("100KiB") == 0
    assert estimate.fits("1GiB")
    assert not estimate.fits("8MiB")


def test_more_memory_never_means_a_smaller_batch(estimate):
    by_limit = sorted((gpu.default_limit, batch) for gpu, batch in estimate.gpus())
    batches = [batch for _, batch in by_limit]
    assert batches == sorted(batches)


def test_evaluation_takes_less_than_training(estimate):
    assert estimate.phases["train"] == estimate.steady_peak
    assert estimate.phases["predict"].value < estimate.steady_peak.value
    assert estimate.phases["evaluate"].value < estimate.steady_peak.value


def test_the_table_and_the_notebook_show_the_peak(estimate):
    assert "steady peak" in str(estimate)
    assert "RTX 3060" in str(estimate)
    assert all(len(line) <= 100 for line in str(estimate).splitlines())
    assert estimate._repr_html_().startswith("<div>")


def test_hostile_names_stay_text(estimate):
    hostile = dataclasses.replace(estimate, model_name="<script>")
    assert "<script>" not in hostile._repr_html_()
    assert "&lt;script&gt;" in hostile._repr_html_()


def test_json_has_bytes_for_every_number(estimate):
    answer = json.loads(json.dumps(estimate.to_dict()))
    for key in ("steady_peak_bytes", "first_step_peak_bytes", "reserved_bytes", "low_bytes", "high_bytes"):
        assert isinstance(answer[key], int)
    assert answer["regime"] == "graph"
    assert answer["breakdown"]["activations_bytes"] > 0
    assert set(answer["phases"]) == {"train", "evaluate", "predict"}


def test_the_regime_is_the_targets_and_not_this_machines():
    assert memfit.estimate(small_cnn(), batch_size=2, gpu="3060").regime == "xla"
    recurrent = compiled(keras.Sequential([keras.Input((8, 4)), layers.LSTM(8), layers.Dense(2, activation="softmax")]))
    found = memfit.estimate(recurrent, batch_size=4, gpu="3060")
    assert found.regime == "graph"
    assert "lstm" in found.regime_reason


def test_recurrent_layers_are_cudnns_on_a_gpu():
    recurrent = compiled(keras.Sequential([keras.Input((8, 4)), layers.LSTM(8), layers.Dense(2, activation="softmax")]))
    step = trace_step(recurrent, "train", gpu=memfit.find_gpu("3060"))
    assert "CudnnRNNV3" in {op.type for op in step.ops}


def test_half_precision_needs_fewer_bytes_of_activations():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        half = memfit.estimate(small_cnn(), batch_size=64, gpu="3060", jit=False)
    finally:
        keras.config.set_dtype_policy("float32")
    assert half.step.otherwise is not None
    assert {tensor.dtype for tensor in half.composition.live} >= {"float16"}


def test_several_inputs_and_outputs():
    left, right = keras.Input((8,), name="left"), keras.Input((4,), name="right")
    joined = layers.Concatenate()([layers.Dense(16)(left), layers.Dense(16)(right)])
    model = keras.Model({"left": left, "right": right}, {"a": layers.Dense(3)(joined), "b": layers.Dense(1)(joined)})
    model.compile("adam", {"a": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "b": "mse"})
    assert memfit.estimate(model, batch_size=16, gpu="3060", jit=False).steady_peak.value > 0


def test_optimizer_state_is_counted():
    adam = memfit.estimate(small_cnn(), batch_size=4, gpu="3060", jit=False)
    sgd = memfit.estimate(small_cnn(optimizer="sgd"), batch_size=4, gpu="3060", jit=False)
    parameters = adam.breakdown()["parameters"]
    assert adam.breakdown()["optimizer_state"] >= 1.9 * parameters
    assert sgd.breakdown()["optimizer_state"] < 0.1 * parameters


def test_nothing_of_the_steps_size_is_allocated():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    huge = memfit.estimate(small_cnn(), batch_size=2**20, gpu="h200", jit=False)
    assert huge.steady_peak.value > 2**38
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 512 * MIB


def uncompiled():
    return keras.Sequential([keras.Input((4,)), layers.Dense(2)])


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs)


def subclassed():
    model = Subclassed()
    model(keras.Input((4,)))
    return compiled(model)


@pytest.mark.parametrize(
    ("make", "arguments", "says"),
    [
        (uncompiled, {}, "is not compiled"),
        (lambda: compiled(keras.Sequential([layers.Dense(2)])), {}, "is not built"),
        (lambda: "a string", {}, "expected a Keras model, got str"),
        (lambda: compiled(keras.Sequential([keras.Input((None, 4)), layers.Dense(2)])), {}, "unknown sizes"),
        (subclassed, {}, "data=(x, y)"),
        (small_cnn, {"batch_size": 0}, "batch_size=0"),
        (small_cnn, {"batch_size": 2**40}, "must be a whole number"),
        (small_cnn, {"batch_size": 2.5}, "must be a whole number"),
        (small_cnn, {"jit": "yes"}, "is not one of"),
        (small_cnn, {"gpu": "rtx 9090"}, "Did you mean"),
    ],
)
def test_bad_input_says_what_is_missing(make, arguments, says):
    with pytest.raises(InputError) as caught:
        memfit.estimate(make(), **{"batch_size": 4, "gpu": "3060", **arguments})
    assert says in str(caught.value)


def test_a_subclassed_model_is_traced_with_an_example_batch():
    import numpy as np

    data = (np.zeros((2, 4), "float32"), np.zeros((2,), "int32"))
    assert memfit.estimate(subclassed(), batch_size=8, gpu="3060", jit=False, data=data).steady_peak.value > 0


def test_a_layer_that_cannot_be_traced_is_told():
    class Broken(layers.Layer):
        def call(self, inputs):
            if inputs.shape[0] is not None:
                raise ValueError("this layer wants an unknown batch")
            return inputs

    model = compiled(keras.Sequential([keras.Input((4,)), Broken(), layers.Dense(2, activation="softmax")]))
    with pytest.raises(TraceError, match="wants an unknown batch"):
        memfit.estimate(model, batch_size=4, gpu="3060", jit=False)


def looped(steps):
    inputs = keras.Input((steps, 32))
    hidden = layers.LSTM(64, recurrent_dropout=0.1, name="looped")(inputs)
    return compiled(keras.Model(inputs, layers.Dense(2, activation="softmax")(hidden)))


def test_what_a_loop_keeps_for_its_gradient_grows_with_its_turns():
    short, long = (memfit.estimate(looped(steps), batch_size=256, gpu="3060", jit=False) for steps in (32, 128))
    assert short.unknown_ops == long.unknown_ops == ()
    kept = {tensor.op_type for tensor in long.composition.live[:3]}
    assert kept == {"TensorListPushBack"}
    assert long.steady_peak.value > 2.5 * short.steady_peak.value
    assert next(iter(long.composition.by_layer())) == "looped"


def test_the_processor_is_a_device_too(estimate):
    here = memfit.estimate(small_cnn(), batch_size=64, gpu="cpu")
    assert here.regime == "graph"
    assert here.breakdown()["workspace"] == 0
    with pytest.raises(InputError, match="GPUs only"):
        memfit.estimate(small_cnn(), batch_size=64, gpu="cpu", jit=True)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: keras.layers.Bidirectional(keras.layers.LSTM(8), name="recurrent"),
        lambda: keras.layers.RandomRotation(0.1, name="recurrent"),
    ],
)
def test_what_keras_trains_without_xla_is_predicted_without(layer):
    shape = (8, 8) if "Bi" in type(layer()).__name__ else (8, 8, 3)
    model = keras.Sequential([keras.Input(shape), layer(), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    found = memfit.estimate(model, batch_size=4, gpu="H200", jit=True)
    assert found.regime == "graph"
    assert "does not support XLA, so Keras does without" in found.regime_reason


@pytest.mark.parametrize(
    ("given", "regime"), [("", "xla"), ("jit_compile=False", "graph"), ("jit_compile=True", "xla")]
)
def test_what_a_function_compiled_with_is_remembered(tmp_path, given, regime):
    (tmp_path / "made.py").write_text(
        "import keras\n"
        "def made():\n"
        "    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])\n"
        f"    model.compile('sgd', 'mse', {given})\n"
        "    return model\n"
    )
    model = load_target(f"{tmp_path / 'made.py'}:made", input_shape=None, optimizer=None, loss=None, policy=None)
    assert memfit.estimate(model, batch_size=4, gpu="H200").regime == regime


def memfit_estimate(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "memfit", "estimate", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_line_answers_with_its_exit_code(tmp_path):
    small_cnn().save(tmp_path / "cnn.keras")
    done = memfit_estimate(str(tmp_path / "cnn.keras"), "--batch", "4096", "--jit", "off", "--gpu", "2GiB", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert answer["fits"] is False
    assert answer["batch_size"] == 4096


def test_the_users_line_is_named(tmp_path):
    (tmp_path / "net.py").write_text(
        "import keras\n"
        "def build():\n"
        "    return keras.Sequential([\n"
        "        keras.Input((32, 32, 3)),\n"
        "        keras.layers.Conv2D(64, 3, name='wide'),\n"
        "        keras.layers.GlobalAveragePooling2D(),\n"
        "        keras.layers.Dense(10),\n"
        "    ])\n"
    )
    done = memfit_estimate(f"{tmp_path}/net.py:build", "--batch", "64", "--jit", "off", "--gpu", "3060", "--json")
    largest = json.loads(done.stdout)["largest"]
    assert {"net.py:5"} == {
        each["source"] for each in largest if each["layer"] == "wide" and each["op_type"] != "Variable"
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.py:build", "--batch", "4"], "nowhere.py"),
        (["keras.applications:NoSuchNet", "--batch", "4"], "NoSuchNet"),
        (["keras.applications:ResNet50", "--batch", "4", "--input", "224;224"], "224,224,3"),
    ],
)
def test_the_command_line_refuses_wrong_input_with_one_sentence(arguments, says):
    done = memfit_estimate(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_a_model_that_returns_its_inputs_has_all_phases():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.ActivityRegularization(l2=0.1)(inputs))
    model.compile("adam", "mse")
    phases = memfit.estimate(model, 2, gpu="cpu", jit=False).phases
    assert all(peak is not None and peak.value < 10_000 for peak in phases.values())
