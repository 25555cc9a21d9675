"""What `memfit run` costs a script that needs nothing: the time of a step under python and under memfit, in turns.

Usage:
    python benchmarks/run_overhead.py [--json OUT.json] [--only small] [--rounds 2] [--graph]

A script trains a model for some epochs and times each from its second step on, so that tracing and compiling are left
out. It runs under python and under `memfit run`, one process after the other, several rounds; the overhead compares the
fastest epochs, which other work on the machine disturbs least. XLA chooses kernels by timing them, which alone makes
steps of two processes differ by up to 7 %, so the first process writes its choice down and the others take it over. The
bar is 3 % after the first step.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from versions import versions

_BAR = 0.03
_MODELS = {"small": (8, 200), "resnet50": (5, 40)}
_SCRIPT = """
import json, sys, time
import keras
import tensorflow as tf
from keras import layers

name, epochs, steps, jit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "jit"
keras.utils.set_random_seed(0)
gpu = bool(tf.config.list_physical_devices("GPU"))
if name == "small":
    # About 5 ms a step on an H200, and on a processor of two cores.
    shape, size, width, depth = (32, 32, 3), 256 if gpu else 8, 64 if gpu else 16, 12 if gpu else 3
    inputs = keras.Input(shape)
    tensor = layers.Conv2D(width, 3, padding="same", activation="relu")(inputs)
    for _ in range(depth):
        tensor = layers.Conv2D(width, 3, padding="same", activation="relu")(tensor)
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(tensor))
    model = keras.Model(inputs, outputs)
else:
    shape, size = (224, 224, 3), 64 if gpu else 2
    model = keras.applications.ResNet50(weights=None, classes=10, classifier_activation=None, input_shape=shape)
model.compile(
    "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], jit_compile=jit
)
batch = tf.random.stateless_uniform((size, *shape), (0, 0)), tf.zeros((size,), "int32")


class Timed(keras.callbacks.Callback):
    seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            self.began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append((time.perf_counter() - self.began) / (steps - 1))


data = tf.data.Dataset.from_tensors(batch).repeat()
model.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=2, callbacks=[Timed()])
device = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0]) if gpu else {}
with open(sys.argv[5], "w") as file:
    json.dump({"seconds": Timed.seconds, "gpu": device.get("device_name")}, file)
"""


def step_seconds(command: list[str], name: str, folder: Path, *, jit: bool) -> tuple[float, str | None]:
    """The fastest epoch's time of a step in a new process, and the GPU."""
    epochs, steps = _MODELS[name]
    script, out = folder / "train.py", folder / "seconds.json"
    script.write_text(_SCRIPT, encoding="utf-8")
    arguments = [name, str(epochs), str(steps), "jit" if jit else "graph", str(out)]
    subprocess.run(
        [*command, str(script), *arguments],
        cwd=folder,
        env={**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_same_kernels(folder)}".strip()},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    found = json.loads(out.read_text(encoding="utf-8"))
    # The first epoch has the profiled step and the first snapshot in it.
    return min(found["seconds"][1:]), found["gpu"]


def _same_kernels(folder: Path) -> str:
    """The option of XLA that writes the chosen kernels to a file, or reads them where they were written."""
    kernels = folder / "kernels.txt"
    written = kernels.exists() and kernels.stat().st_size
    return f"--xla_gpu_{'load_autotune_results_from' if written else 'dump_autotune_results_to'}={kernels}"


def compared(name: str, rounds: int, *, jit: bool) -> dict[str, Any]:
    """Steps under python and under memfit, in turns."""
    plain, under, gpu = [], [], None
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            seconds, gpu = step_seconds([sys.executable], name, Path(folder), jit=jit)
            plain.append(seconds)
            record = str(Path(folder) / f"{number}.memfit.jsonl")
            command = [sys.executable, "-m", "memfit", "run", "--record", record]
            under.append(step_seconds(command, name, Path(folder), jit=jit)[0])
    return {
        "model": name,
        "regime": "xla" if jit else "graph",
        "gpu": gpu,
        "plain_step_seconds": min(plain),
        "memfit_step_seconds": min(under),
        "overhead": min(under) / min(plain) - 1,
        "rounds": {"plain": plain, "memfit": under},
    }


def main() -> None:
    """Print a table, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", choices=[*_MODELS])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--graph", action="store_true", help="without XLA")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    cases = [compared(name, options.rounds, jit=not options.graph) for name in options.only or _MODELS]
    table = Table("model", "regime", "python, ms", "memfit run, ms", "overhead", box=None)
    for each in cases:
        plain, under = (f"{1000 * each[key]:.2f}" for key in ("plain_step_seconds", "memfit_step_seconds"))
        table.add_row(each["model"], each["regime"], plain, under, f"{each['overhead']:+.1%}")
    Console().print(table)
    if options.json:
        result = {"date": f"{datetime.now(timezone.utc):%Y-%m-%d}", "versions": versions(), "bar": _BAR, "cases": cases}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
