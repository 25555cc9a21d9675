"""Real out-of-memory errors explained, planted leaks found by name, and clean scripts left in peace.

On the CPU's BFC allocator, which has a GPU's limits and statistics.
"""

import textwrap

import pytest

LIMITED = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1024"}
# Without oneDNN, some of whose kernels read a null pointer where memory has run out.
TIGHT = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "80", "TF_ENABLE_ONEDNN_OPTS": "0"}
PRELUDE = """
import keras, numpy as np, tensorflow as tf
from keras import layers
import memfit

x = np.random.default_rng(0).random((96, 16, 16, 3), "float32")
y = np.random.default_rng(1).integers(0, 4, 96)
crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def compiled(model, **settings):
    model.compile(**{"optimizer": "adam", "loss": crossentropy, "jit_compile": False, **settings})
    return model

def net(*first, **settings):
    body = [layers.Conv2D(8, 3, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(4)]
    return compiled(keras.Sequential([keras.Input((16, 16, 3)), *first, *body]), **settings)

def dataset(size=8):
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96).batch(size)

recorder = memfit.Recorder(PATH)
quiet = {"verbose": 0, "callbacks": [recorder]}
"""
FOUND = """
from memfit.observe.findings import findings
from memfit.observe.live import live_findings
from memfit.observe.record import read_record
found = list(live_findings())
recorder.close()
if recorder.path.exists(): found += findings(read_record(recorder.path))
report([[each.id, each.title, each.evidence, each.fix] for each in found])
"""

PLANTED = {
    "tensors-in-a-list": """
        model, history = net(), []
        for _ in range(60):
            with tf.GradientTape() as tape:
                loss = crossentropy(y[:8], model(x[:8], training=True))
            model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            history.append(loss)
        """,
    "device-memory-leak": """
        class KeepsBatches(keras.callbacks.Callback):
            kept = []
            def on_train_batch_end(self, batch, logs=None): self.kept.append(tf.zeros((64, 1024)))
        net().fit(x, y, batch_size=8, epochs=8, verbose=0, callbacks=[recorder, KeepsBatches()])
        """,
    "host-memory-leak": """
        class KeepsArrays(keras.callbacks.Callback):
            kept = []
            def on_train_batch_end(self, batch, logs=None): self.kept.append(np.ones(2**18))
        net().fit(x, y, batch_size=8, epochs=12, verbose=0, callbacks=[recorder, KeepsArrays()])
        """,
    "predictions-kept": """
        model = net()
        def evaluate():
            results = []
            for _ in range(24): results.append(model(np.repeat(x, 40, axis=0), training=False))
            return results
        kept = evaluate()
        """,
    "predictions-pile-up": """
        model = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(64, 1)])
        model.predict(np.zeros((2400, 16, 16, 3), "float32"), batch_size=32, **quiet)
        """,
    "validation-above-training": """
        many = np.repeat(x, 100, axis=0), np.repeat(y, 100)
        net().fit(x, y, batch_size=8, epochs=2, validation_data=many, validation_batch_size=3200, **quiet)
        """,
    "models-in-a-loop": """
        scores = {}
        for width in range(7):
            model = net()
            scores[width] = model, model.fit(x[:16], y[:16], **quiet).history["loss"][-1]
        """,
    "retracing": """
        model = net()
        for rate in (0.1, 0.05, 0.02, 0.01, 0.005):
            compiled(model, optimizer=keras.optimizers.Adam(rate)).fit(x, y, **quiet)
        """,
    "data-on-device": """
        images = tf.constant(np.zeros((20000, 16, 16, 3), "float32"))
        labels = np.zeros(20000, "int32")
        data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8).take(4)
        net().fit(data, **quiet)
        """,
    "preprocessing-in-model": """
        net(layers.RandomFlip(), layers.RandomRotation(0.1), layers.Rescaling(2.0)).fit(x, y, **quiet)
        """,
    "dataset-cache-in-ram": """
        decoded = tf.data.Dataset.range(20_000_000).map(lambda i: (tf.zeros((16, 16, 3)), 0)).batch(8)
        # Only the beginning is really cached here; whole it would be 57 GiB.
        train = decoded.cache()
        net().fit(train.take(4), **quiet)
        """,
}
ALSO = {"device-memory-leak": {"tensors-in-a-list"}}
CLEAN = {
    "arrays with validation": "net().fit(x, y, batch_size=8, epochs=8, validation_split=0.25, **quiet)",
    "a data set that is shuffled, cached and prefetched": """
        data = dataset().cache().prefetch(2)
        net(layers.Rescaling(1 / 255), layers.BatchNormalization()).fit(data, epochs=8, validation_data=data, **quiet)
        """,
    "a loop of one's own that keeps numbers": """
        model, history, last = net(), [], []
        @tf.function
        def step(images, labels):
            with tf.GradientTape() as tape:
                loss = crossentropy(labels, model(images, training=True))
            model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss
        for _ in range(6):
            for images, labels in dataset():
                loss = step(images, labels)
                history.append(float(loss))
                last = [*last, loss][-10:]
        """,
    "folds with a model each": """
        for fold in range(4):
            model = net()
            model.fit(x, y, batch_size=8, epochs=2, validation_data=(x[:16], y[:16]), **quiet)
            score = model.evaluate(x[:16], y[:16], verbose=0)
            keras.backend.clear_session()
        """,
    "fit, evaluate and predict with a smaller last batch": """
        model, results = net(), []
        for _ in range(5):
            model.fit(x[:90], y[:90], batch_size=16, **quiet)
            model.evaluate(x[:90], y[:90], batch_size=16, **quiet)
            results.append(model.predict(x[:90], batch_size=16, **quiet))
        """,
    "a generator and a custom callback": """
        class Rates(keras.callbacks.Callback):
            def __init__(self): super().__init__(); self.rates = []
            def on_train_batch_end(self, batch, logs=None): self.rates.append(float(logs["loss"]))
        class Batches(keras.utils.PyDataset):
            def __len__(self): return 12
            def __getitem__(self, index): return x[index * 8:(index + 1) * 8], y[index * 8:(index + 1) * 8]
        net().fit(Batches(workers=1), epochs=6, verbose=0, callbacks=[recorder, Rates()])
        """,
    "sequences with dropout, a schedule and early stopping": """
        inputs = keras.Input((12,), dtype="int32")
        body = layers.LSTM(8)(layers.Dropout(0.2)(layers.Embedding(50, 8)(inputs)))
        rate = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)
        model = compiled(keras.Model(inputs, layers.Dense(4)(body)), optimizer=keras.optimizers.Adam(rate))
        words = np.random.default_rng(2).integers(0, 50, (96, 12))
        stop = keras.callbacks.EarlyStopping("loss", patience=20, restore_best_weights=True)
        model.fit(words, y, batch_size=8, epochs=8, verbose=0, class_weight={0: 2.0}, callbacks=[recorder, stop])
        """,
    "a frozen base that is tuned later": """
        base = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(8, 3), layers.BatchNormalization()])
        base.trainable = False
        model = compiled(keras.Sequential([base, layers.Flatten(), layers.Dense(4)]))
        model.fit(dataset(), epochs=4, **quiet)
        base.trainable = True
        compiled(model, optimizer=keras.optimizers.Adam(1e-5)).fit(dataset(), epochs=4, **quiet)
        """,
    "two networks against each other": """
        makes = keras.Sequential([keras.Input((4,)), layers.Dense(16 * 16 * 3), layers.Reshape((16, 16, 3))])
        judges = net()
        for _ in range(20):
            images = np.asarray(makes(np.random.rand(8, 4)))
            judges.train_on_batch(images, y[:8])
        """,
    "eager steps and an ensemble of three": """
        members = [net(run_eagerly=True) for _ in range(3)]
        for member in members: member.fit(dataset(16), epochs=2, **quiet)
        mean = np.mean([member.predict(x, verbose=0) for member in members], axis=0)
        """,
}
QUICK = ("arrays with validation", "a loop of one's own that keeps numbers", "folds with a model each")


@pytest.fixture
def found_in(run_child, tmp_path):
    """Run a script under a limit; everything that was found, by id."""

    def run(script):
        prelude = f"PATH = {str(tmp_path / 'run.memfit.jsonl')!r}\n{PRELUDE}"
        lines = run_child(f"{prelude}{textwrap.dedent(script)}{FOUND}", **LIMITED)
        return {line[0]: line for line in lines}

    return run


@pytest.mark.slow
@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_found_by_its_name(found_in, cause):
    found = found_in(PLANTED[cause])
    assert cause in found
    assert set(found) - ALSO.get(cause, set()) == {cause}, "and nothing else"


def test_a_finding_says_where_and_how_much(found_in):
    _, title, evidence, fix = found_in(PLANTED["tensors-in-a-list"])["tensors-in-a-list"]
    assert title == "`history` holds 60 tensors"
    assert "15 KiB, on CPU:0; the last has shape () and type float32" in evidence
    assert fix.startswith("history.append(float(value))")


@pytest.mark.parametrize(
    "script", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name) for name in CLEAN]
)
def test_a_clean_script_has_no_finding(found_in, script):
    assert found_in(CLEAN[script]) == {}


OOM = """
import keras, numpy as np
from keras import layers
import memfit

def build(compile_it):
    inputs = keras.Input((64, 64, 3))
    hidden = layers.Conv2D(16, 3, activation="relu", name="first")(inputs)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.Conv2D(64, 3, activation="relu", name="wide")(hidden)
    hidden = layers.MaxPooling2D(name="pool")(hidden)
    model = keras.Model(inputs, layers.Dense(4)(layers.Flatten()(hidden)), name="net")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=compile_it)
    return model

def explained(compile_it=False, batch_size=64, **settings):
    model = build(compile_it)
    try:
        model.fit(np.zeros((64, 64, 64, 3), "float32"), np.zeros(64, "int32"), batch_size=64, verbose=0)
    except Exception as error:
        without = memfit.explain_oom(error)
        given = memfit.explain_oom(error, model, batch_size, **settings)
        return without, given
"""


@pytest.fixture
def script(tmp_path):
    """The path of a script that runs out of memory, so that its lines have a file."""
    path = tmp_path / "train.py"
    path.write_text(OOM)
    return path


def importing(script):
    return f"import sys; sys.path.insert(0, {str(script.parent)!r}); import train\n"


@pytest.mark.slow  # TensorFlow waits ten seconds before it gives an allocation up
def test_a_real_error_is_explained_with_layer_line_and_plan(run_child, script):
    without, given, text = run_child(
        importing(script)
        + "without, given = train.explained(numerics='close')\n"
        + "report([without.to_dict(), given.to_dict(), str(given)])",
        **TIGHT,
    )
    lines = OOM.splitlines()
    for explained in (without, given):
        assert explained["error"] == "ResourceExhaustedError"
        assert explained["layer"] in ("norm", "wide", "pool")
        file, _, line = explained["source"].rpartition(":")
        assert (file, f'name="{explained["layer"]}"' in lines[int(line) - 1]) == (str(script), True)
        assert explained["called_at"].startswith(f"{script}:")
        assert explained["asked_bytes"] > 10 * 2**20
        assert (explained["device"], explained["limit_bytes"]) == ("CPU:0", 80 * 2**20)
    assert given["predicted_peak_bytes"] > 80 * 2**20
    assert given["predicted"]["activations_bytes"] > given["predicted"]["parameters_bytes"]
    assert given["plan"]["feasible"]
    assert len(text.splitlines()) <= 20
    assert max(map(len, text.splitlines())) <= 100
    assert "memfit.fit(model, ..., batch_size=64, plan=memfit." in text


@pytest.mark.slow
def test_the_line_that_made_an_unnamed_layer_is_remembered(run_child, script):
    script.write_text(OOM.replace(', name="norm"', "").replace('name="norm"', "").replace(', name="wide"', ""))
    explained = run_child(
        importing(script)
        + "from memfit.trace.source import recording_sources\n"
        + "with recording_sources():\n    without, _ = train.explained()\nreport(without.to_dict())",
        **TIGHT,
    )
    file, _, line = explained["source"].rpartition(":")
    assert file == "train.py"
    assert "layers." in script.read_text().splitlines()[int(line) - 1]


@pytest.mark.slow
def test_a_compiled_step_is_explained_before_the_process_dies_of_it(run_child, script):
    explained, text = run_child(
        importing(script)
        + "without, given = train.explained(True)\nreport([given.to_dict(), str(given)])\nimport os; os._exit(0)",
        **TIGHT,
    )
    assert explained["compiled"]
    assert explained["layer"] is None
    assert explained["asked_bytes"] > 30 * 2**20
    assert "XLA is modelled for GPUs only" in text


def test_nothing_is_printed_and_other_errors_are_refused(run_child):
    refused, printed = run_child(
        """
        import contextlib, io
        import keras, memfit, tensorflow as tf
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            memfit.explain_oom(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"))
            try:
                tf.linalg.matmul(tf.ones((2, 3)), tf.ones((2, 3)))
            except Exception as error:
                try:
                    memfit.explain_oom(error)
                except memfit.MemfitError as problem:
                    refused = str(problem)
        report([refused, out.getvalue()])
        """
    )
    assert "this error is not out-of-memory: InvalidArgumentError" in refused
    assert printed == ""
