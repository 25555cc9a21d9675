"""`memfit run` on a real GPU, under XLA, where running out of memory ends a plain process. Run these by hand."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from memfit.hardware.probe import probe
from memfit.observe.record import read_record

pytestmark = pytest.mark.gpu

SCRIPT = """
    import json, os, sys
    import keras
    import numpy as np
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.utils.set_random_seed(0)
    tensor = inputs = keras.Input((64, 64, 3))
    for _ in range(12):
        tensor = keras.layers.Conv2D(64, 3, padding="same", activation="relu")(tensor)
    tensor = keras.layers.GlobalAveragePooling2D()(tensor)
    model = keras.Model(inputs, keras.layers.Dense(4)(tensor))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(0)
    x, y = random.random((1024, 64, 64, 3), dtype="float32"), random.integers(0, 4, 1024)

    class Dying(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if "die" in sys.argv and batch == 2 and not os.path.exists("died"):
                open("died", "w").close()
                os.abort()

    history = model.fit(x, y, batch_size=256, epochs=2, verbose=0, shuffle=False, callbacks=[Dying()])
    print(json.dumps([model.jit_compile, history.history["loss"]]))
"""


@pytest.fixture(scope="module", autouse=True)
def needs_gpu():
    if not probe(timeout=120).gpus:
        pytest.skip("TensorFlow sees no GPU here")


def run(folder, *options, arguments=()):
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "memfit", "run", "--record", "run.memfit.jsonl", "--force", *options]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*command, "train.py", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    compiled, losses = json.loads(done.stdout.splitlines()[-1])
    assert compiled
    return losses, read_record(folder / "run.memfit.jsonl"), done.stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    losses, record, _ = run(tmp_path_factory.mktemp("plain"), "--growth", "--no-recover")
    return losses, max(line.peak_bytes for line in record.steps)


def test_a_budget_is_planned_for_and_kept(tmp_path, plain):
    losses, peak = plain
    budget = int(0.6 * peak)
    ours, record, said = run(tmp_path, "--budget", str(budget))
    assert ours == pytest.approx(losses, rel=1e-3)
    assert "predicted to fit in" in said
    assert not record.out_of_memory
    assert max(line.peak_bytes for line in record.steps) <= budget


def test_running_out_of_memory_costs_time_only(tmp_path, plain):
    losses, peak = plain
    ours, record, said = run(tmp_path, "--limit", str(int(0.6 * peak)))
    assert ours == pytest.approx(losses, rel=1e-3)
    assert record.recoveries
    assert "retried the same batch" in said


def test_a_process_that_died_goes_on(tmp_path, plain):
    losses, _ = plain
    ours, record, _ = run(tmp_path, "--growth", "--snapshot-every", "0", arguments=["die"])
    assert ours == pytest.approx(losses, rel=1e-3)
    assert [line.restart for line in record.recoveries] == [True]
