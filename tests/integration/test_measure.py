"""Small models are really trained in a child process on the CPU, through TensorFlow's BFC allocator."""

import textwrap

import pytest

CUSTOM = """
    import os, signal
    import keras

    class Twice(keras.layers.Layer):
        def call(self, x): return x * 2

    class Forgetful(keras.layers.Layer):
        def __init__(self, units):
            super().__init__()
            self.units = units
        def call(self, x): return x
        def get_config(self): raise NotImplementedError("no configuration for you")

    class Fatal(keras.layers.Layer):
        def call(self, x):
            if "memfit-measure" in " ".join(open("/proc/self/cmdline").read().split(chr(0))):
                os.write(2, b"the last words\\n")
                os.kill(os.getpid(), signal.SIGABRT)
            return x

    def my_loss(y, prediction): return keras.ops.mean((y - prediction) ** 2, axis=-1)

    def shifted(x): return x + 1
"""

PRELUDE = """
    import sys
    sys.path.insert(0, {folder!r})
    import keras
    from keras import layers
    from memfit.errors import InputError
    from memfit.estimation.measure import MeasureError, OutOfMemoryError, measure

    def cnn(**settings):
        model = keras.Sequential([
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
            layers.Flatten(), layers.Dense(10),
        ])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **settings)
        return model

    def small(*layers_of_it, loss="mse"):
        model = keras.Sequential([keras.Input((8,)), *layers_of_it])
        model.compile("sgd", loss)
        return model

    def error(*arguments, **given):
        try:
            return repr(measure(*arguments, **given))
        except (MeasureError, InputError) as raised:
            return [type(raised).__name__, raised.exit_code, str(raised)]
"""


@pytest.fixture
def run(run_child, tmp_path):
    """Run code with `measure`, a few models and the module `custom` at hand."""
    (tmp_path / "custom.py").write_text(textwrap.dedent(CUSTOM))

    def run(code):
        return run_child(textwrap.dedent(PRELUDE.format(folder=str(tmp_path))) + textwrap.dedent(code))

    return run


@pytest.mark.slow
def test_the_peaks_are_ordered_and_the_parent_stays_as_it_was(run):
    parameters, measured, unchanged, grown = run(
        """
        import resource
        model = cnn()
        error(model, 1, timeout=0.1)  # saving loads libraries once
        weights = [value.copy() for value in model.get_weights()]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        measured = measure(model, 256, steps=2)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        unchanged = all((a == b).all() for a, b in zip(weights, model.get_weights()))
        report([model.count_params(), measured.to_dict(), unchanged and int(model.optimizer.iterations) == 0, grown])
        """
    )
    batch, activation = 256 * 32 * 32 * 3 * 4, 256 * 32 * 32 * 32 * 4
    state = 3 * 4 * parameters  # weights and Adam's two moments
    assert measured["device"] == "CPU:0"
    assert measured["batch_size"] == 256
    assert measured["jit"] is False
    assert measured["measured_step_seconds"] > 0
    # The allocator counts chunks, which may be larger than what was asked for.
    assert state + batch <= measured["measured_between_steps_bytes"] <= 1.25 * (state + batch)
    assert measured["measured_steady_peak_bytes"] >= measured["measured_between_steps_bytes"] + 2 * activation
    assert measured["measured_first_step_peak_bytes"] >= 0.99 * measured["measured_steady_peak_bytes"]
    assert measured["measured_steady_peak_bytes"] > measured["measured_evaluate_peak_bytes"]
    assert measured["measured_predict_peak_bytes"] >= measured["measured_between_steps_bytes"] + activation
    assert unchanged, "the model of the parent must not be trained"
    assert grown < activation, "the parent must not hold what the step holds"


@pytest.mark.slow
def test_labels_tokens_and_custom_parts_are_such_that_the_step_runs(run):
    tokens, example = run(
        """
        import custom, numpy as np
        inputs = keras.Input((12,), dtype="int32")
        x = custom.Twice()(layers.GlobalAveragePooling1D()(layers.Embedding(3, 8)(inputs)))
        outputs = {"a": layers.Dense(7)(x), "b": layers.Dense(1, activation=custom.shifted)(x)}
        model = keras.Model(inputs, outputs)
        model.compile("sgd", {"a": "sparse_categorical_crossentropy", "b": custom.my_loss})
        example = np.zeros((2, 8), "float32"), np.zeros((2, 4), "float32"), np.ones((2,), "float32")
        report([measure(model, 4, steps=1).steady_peak,
                measure(small(layers.Dense(4)), 4, data=example, steps=1).steady_peak])
        """
    )
    assert min(tokens, example) > 0


@pytest.mark.slow
def test_xla_is_used_when_asked_for(run):
    assert run(
        "measured = measure(cnn(), 16, jit=True, steps=1); report([measured.jit, measured.steady_peak > 0])"
    ) == [
        True,
        True,
    ]


def test_a_model_that_cannot_be_handed_over_says_why(run):
    said = run(
        """
        import custom
        class InTheScript(layers.Layer):
            def call(self, x): return x
        def local():
            class Inside(custom.Twice): __module__ = "custom"
            return Inside()
        report({
            "unsaveable": error(small(custom.Forgetful(3)), 4),
            "script": error(small(InTheScript()), 4),
            "local": error(small(local()), 4),
            "crash": error(small(custom.Fatal()), 4),
            "slow": error(small(layers.Dense(1)), 4, timeout=0.2),
            "unbuilt": error(keras.Sequential([layers.Dense(1)]), 4),
            "batch": error(small(layers.Dense(1)), 0),
            "limit": error(small(layers.Dense(1)), 4, limit="900TiB"),
        })
        """
    )
    assert said["unsaveable"][:2] == ["MeasureError", 1]
    assert "cannot be saved" in said["unsaveable"][2]
    assert "no configuration for you" in said["unsaveable"][2]
    assert "'InTheScript' is defined in the script itself" in said["script"][2]
    assert "'Inside' is defined inside a function" in said["local"][2]
    assert "SIGABRT: the last words" in said["crash"][2]
    assert "not done after 0.2 s" in said["slow"][2]
    assert said["unbuilt"][:2] == ["InputError", 2]
    assert "batch_size must be a whole number of at least 1; got 0" in said["batch"][2]
    assert said["limit"][:2] == ["InputError", 2]
    assert "more memory than" in said["limit"][2]


@pytest.mark.slow  # TensorFlow waits ten seconds before it gives an allocation up
def test_too_little_memory_is_an_answer_that_names_the_phase(run):
    name, code, said = run("report(error(cnn(), 64, limit='24MiB'))")
    assert (name, code) == ("OutOfMemoryError", 1)
    assert "24 MiB of memory is not enough" in said
    assert "while training the first steps" in said
    assert "OOM when allocating tensor" in said
    assert "Lower the batch size" in said
