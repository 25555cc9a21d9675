"""`memfit run` on scripts that train: the same result as under python, whatever memory does."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from memfit.observe.record import read_record
from memfit.planning.plan import Plan

RUN = [sys.executable, "-m", "memfit", "run", "--record", "run.memfit.jsonl"]
EXAMPLES = Path(__file__).parents[2] / "examples"

# In float64, so that only mistakes show. What it prints at its end is all there is of it.
SCRIPT = """
    import json, os, sys
    import numpy as np
    import keras

    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(0)

    def built(width, layers=12):
        tensor = inputs = keras.Input((32,))
        for _ in range(layers):
            tensor = keras.layers.Dense(width, activation="relu")(tensor)
            tensor = keras.layers.Dropout(0.2)(tensor)
        model = keras.Model(inputs, keras.layers.Dense(4)(tensor))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        return model

    random = np.random.default_rng(0)
    x, y = random.normal(size=(6000, 32)), random.integers(0, 4, 6000)

    class Counting(keras.callbacks.Callback):
        def __init__(self, batches):
            super().__init__()
            self.batches = batches
        def on_train_batch_end(self, batch, logs=None):
            self.batches.append(batch)
            if len(self.batches) in map(int, sys.argv[1:]) and not os.path.exists(f"died-{len(self.batches)}"):
                open(f"died-{len(self.batches)}", "w").close()
                os.abort()

    first = built(16)
    warm_up = first.fit(x[:1000], y[:1000], batch_size=100, epochs=2, verbose=0, shuffle=False)
    batches = []
    stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=20)
    model = built(128)
    history = model.fit(
        x, y, batch_size=1000, epochs=4, verbose=0, shuffle=False, validation_split=0.1,
        callbacks=[Counting(batches), stopping, keras.callbacks.CSVLogger("epochs.csv")],
    )
    np.savez("weights.npz", *[each.numpy() for each in (*model.variables, *model.optimizer.variables)])
    best = None if stopping.best is None else float(stopping.best)
    print(json.dumps([warm_up.history, history.history, history.epoch, batches, best]))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    return tmp_path


def run(command, folder, **environment):
    base = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_", "CUDA_"))}
    # Without oneDNN's kernels, which may crash where others report that memory ran out.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        command, cwd=folder, env={**base, **quiet, **environment}, capture_output=True, text=True, check=False
    )
    weights = folder / "weights.npz"
    kept = list(np.load(weights).values()) if weights.exists() else []
    weights.unlink(missing_ok=True)
    return done, kept


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What the script prints and trains under python, where there is memory enough."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
    done, weights = run([sys.executable, "train.py"], folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), weights, (folder / "epochs.csv").read_text()


def assert_same(done, weights, plain, *, csv=None):
    assert done.returncode == 0, done.stderr
    printed, expected, table = plain
    for ours, theirs in zip(json.loads(done.stdout), printed, strict=True):
        assert str(ours)[:5] == str(theirs)[:5]
        if isinstance(ours, dict):
            for name, values in theirs.items():
                np.testing.assert_allclose(ours[name], values, rtol=1e-5)
        elif isinstance(ours, list):
            assert ours == theirs
    for ours, theirs in zip(weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    if csv is not None:
        assert [line.split(",")[0] for line in csv.splitlines()] == [line.split(",")[0] for line in table.splitlines()]


@pytest.mark.slow
def test_running_out_of_memory_changes_nothing_but_the_time(folder, plain):
    done, weights = run([*RUN, "--limit", "24MiB", "train.py"], folder)
    assert_same(done, weights, plain)
    assert "out of memory in train step 1" in done.stderr
    assert done.stderr.endswith("Wrote run.memfit.jsonl\nmemfit report run.memfit.jsonl\n")
    record = read_record(folder / "run.memfit.jsonl")
    assert record.run.limit_bytes == 24 * 2**20
    assert record.end.outcome == "finished"
    assert [line.model for line in record.models] == ["functional", "functional_1"]
    assert record.recoveries[0].techniques["micro_batch"] < 1000


@pytest.mark.slow
def test_a_budget_is_planned_for_and_kept(folder, plain):
    done, weights = run([*RUN, "--budget", "28MiB", "train.py"], folder)
    assert_same(done, weights, plain)
    assert "batch 1000: predicted peak without changes" in done.stderr
    assert "predicted to fit in 28 MiB" in done.stderr
    record = read_record(folder / "run.memfit.jsonl")
    planned = record.models[1]
    assert planned.plan["techniques"]
    assert planned.estimate is not None
    assert max(line.peak_bytes for line in record.steps) <= 28 * 2**20


@pytest.mark.slow
def test_a_process_that_died_goes_on_from_its_last_snapshot(folder, plain):
    """In the middle of the second epoch, and again in the fourth."""
    done, weights = run([*RUN, "--snapshot-every", "0", "train.py", "8", "20"], folder)
    assert_same(done, weights, plain, csv=(folder / "epochs.csv").read_text())
    assert done.stderr.count("restarting with less memory") == 2
    assert done.stderr.count("fit 1 is already finished; restoring its result") == 2
    assert "fit 2 continues from epoch 2, batch 2 with micro_batch=500" in done.stderr
    assert "fit 2 continues from epoch 4, batch 2 with micro_batch=250" in done.stderr
    record = read_record(folder / "run.memfit.jsonl")
    assert [line.restart for line in record.recoveries] == [True, True]
    assert record.end.outcome == "finished"
    assert "Finished. It was restarted twice, at a cost of" in done.stderr
    assert not list(folder.glob(".memfit*"))


# Models that Keras builds no earlier than in the first step, with a step and optimizers of their own.
OWN_STEP = """
    import os, sys
    import keras
    import numpy as np
    import tensorflow as tf

    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(0)

    def network(*widths):
        return keras.Sequential([keras.layers.Dense(each, activation="tanh") for each in widths])

    class GAN(keras.Model):
        def __init__(self):
            super().__init__()
            self.generator, self.critic = network(32, 32, 32, 8), network(32, 32, 32, 1)
            self.optimizers = {"generator": keras.optimizers.Adam(), "critic": keras.optimizers.Adam(1e-2)}
            self.seeds = keras.random.SeedGenerator(3)
            self.mean_loss = keras.metrics.Mean(name="loss")
            if "counter" in sys.argv:
                self.counter = [tf.Variable(0.0, dtype="float64")]

        def train_step(self, real):
            made = lambda: self.generator(keras.random.normal((tf.shape(real)[0], 4), seed=self.seeds), training=True)
            losses = {
                "critic": lambda: tf.reduce_mean(self.critic(made()) ** 2 + (self.critic(real) - 1) ** 2),
                "generator": lambda: tf.reduce_mean((self.critic(made()) - 1) ** 2),
            }
            for name, loss in losses.items():
                with tf.GradientTape() as tape:
                    value = loss()
                weights = getattr(self, name).trainable_variables
                self.optimizers[name].apply_gradients(zip(tape.gradient(value, weights), weights))
            self.mean_loss.update_state(value)
            if "counter" in sys.argv:
                self.counter[0].assign_add(value)
            return {"loss": self.mean_loss.result()}

    class Dying(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if "die" in sys.argv and self.model.optimizers["critic"].iterations == 6 and not os.path.exists("died"):
                open("died", "w").close()
                os.abort()

    data = np.random.default_rng(0).normal(size=(400, 8))
    kept = []
    for _ in range(2):
        model = GAN()
        model.compile()
        model.fit(data, batch_size=100, epochs=3, verbose=0, shuffle=False, callbacks=[Dying()] if kept else [])
        kept += [*model.variables, *(slot for each in model.optimizers.values() for slot in each.variables)]
        kept += getattr(model, "counter", [])
    np.savez("weights.npz", *[each.numpy() for each in kept])
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("counter",)])
def test_a_model_with_its_own_step_goes_on_with_all_that_it_trains(tmp_path, arguments):
    (tmp_path / "train.py").write_text(textwrap.dedent(OWN_STEP))
    _, plain = run([sys.executable, "train.py", *arguments], tmp_path)
    done, weights = run([*RUN, "--snapshot-every", "0", "train.py", "die", *arguments], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("restarting with less memory") == 1
    for ours, theirs in zip(weights, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    if arguments:
        # A variable that only the script holds: each fit begins anew.
        assert "the train step changes variables that neither the model nor its optimizers hold" in done.stderr
        assert "fit 2 continues from its beginning" in done.stderr
    else:
        assert "fit 1 is already finished; restoring its result" in done.stderr
        assert "fit 2 continues from epoch 2, batch 2" in done.stderr


@pytest.mark.slow
def test_a_script_is_not_started_again_for_ever(folder):
    done, _ = run([*RUN, "--restarts", "1", "train.py", "2", "3"], folder)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr.count("restarting with less memory") == 1
    assert read_record(folder / "run.memfit.jsonl").end is None


@pytest.mark.slow
def test_a_script_that_cannot_run_twice_is_told_why_it_was_started_again(folder):
    script = folder / "train.py"
    script.write_text("import os\nos.mkdir('made')\n" + script.read_text())
    done, _ = run([*RUN, "train.py", "2"], folder)
    assert done.returncode == 1
    assert "FileExistsError" in done.stderr
    assert "memfit: it was restarted because the process was ended by SIGABRT in fit 2" in done.stderr


@pytest.mark.slow
def test_without_recovery_an_error_is_explained_after_its_traceback(folder):
    done, _ = run([*RUN, "--limit", "24MiB", "--no-recover", "train.py"], folder)
    assert done.returncode == 1
    assert done.stdout == ""
    traceback, _, explained = done.stderr.partition("\nOut of memory: ")
    assert f'Traceback (most recent call last):\n  File "{folder / "train.py"}", line' in traceback
    assert "ResourceExhaustedError" in traceback
    words = " ".join(explained.split())
    assert "to fit memfit.fit(model, ..., batch_size=1000, plan=memfit." in words
    assert "same result to rounding" in words
    assert "Ran out of memory in train step" in done.stderr
    record = read_record(folder / "run.memfit.jsonl")
    assert record.out_of_memory[0].asked_bytes > 0
    assert record.end.outcome == "failed"


@pytest.mark.slow
def test_a_saved_plan_goes_onto_the_model_it_was_made_for(folder, plain):
    Plan(micro_batch=250, model="26-0123456789ab").save(folder / "other.json")
    Plan(micro_batch=50).save(folder / "plan.json")
    done, weights = run([*RUN, "--plan", "plan.json", "train.py"], folder)
    assert_same(done, weights, plain)
    assert done.stderr.count("micro_batch 50 at a time") == 2
    assert {line.plan["techniques"]["micro_batch"] for line in read_record(folder / "run.memfit.jsonl").models} == {50}
    done, weights = run([*RUN, "--force", "--plan", "other.json", "train.py"], folder)
    assert_same(done, weights, plain)
    assert done.stderr.count("running unmodified: the plan was made for the model") == 2


def test_what_the_script_says_about_its_devices_is_overruled(tmp_path):
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
            import os
            os.environ["TF_FOR_THE_SCRIPT"] = "1"
            import tensorflow as tf
            for gpu in tf.config.list_physical_devices("CPU"):
                tf.config.experimental.set_memory_growth(gpu, True)
            kept = tf.ones([2**20, 4])
            print(tf.config.experimental.get_memory_info("CPU:0")["current"] > 0)
            tf.ones([2**24, 4])
        """)
    )
    done, _ = run([*RUN, "--limit", "64MiB", "train.py"], tmp_path)
    assert done.stdout == "True\n"
    assert "--limit 64MiB is in effect; the script's set_memory_growth(...) is ignored" in done.stderr
    assert "Out of memory: Fill asked for 256 MiB" in done.stderr
    assert done.returncode == 1


def test_a_script_that_loads_with_processes_and_writes_its_own_step(tmp_path):
    """Nothing can be planned or recovered here, and nothing is in the way."""
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
            import keras
            import numpy as np

            class Batches(keras.utils.PyDataset):
                def __len__(self):
                    return 6
                def __getitem__(self, at):
                    return np.full((4, 8), float(at)), np.zeros((4, 1))

            class Own(keras.Model):
                def __init__(self):
                    super().__init__()
                    self.dense = keras.layers.Dense(1)
                def call(self, inputs):
                    return self.dense(inputs)
                def train_step(self, data):
                    return super().train_step(data)

            if __name__ == "__main__":
                model = Own()
                model.compile("sgd", "mse")
                batches = Batches(workers=2, use_multiprocessing=True)
                history = model.fit(batches, epochs=2, verbose=2, validation_data=batches)
                model.evaluate(batches, verbose=0)
                print(len(history.history["val_loss"]), model.predict(np.zeros((4, 8)), verbose=0).shape)
        """)
    )
    done, _ = run([*RUN, "--limit", "512MiB", "--plan", "auto", "train.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "Epoch 1/2"
    assert done.stdout.splitlines()[-1] == "2 (4, 1)"
    record = read_record(tmp_path / "run.memfit.jsonl")
    assert {line.phase for line in record.steps} == {"train", "validation", "predict"}
    assert sum(line.count for line in record.steps if line.phase == "train") == 12


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(tmp_path, example):
    done, _ = run([*RUN, str(example)], tmp_path)
    assert done.returncode == 0, done.stderr
