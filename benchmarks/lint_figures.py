"""What the mistakes that `memfit lint` finds cost: each figure of a rule's page, measured with and without the mistake.

Usage:
    python benchmarks/lint_figures.py [--json benchmarks/results/lint_figures.json] [--only stacked_copies]

Each side runs in a process of its own, on the CPU. "device" is what TensorFlow's own allocator counts, the one that is
used for GPUs (`memfit.devices.configure(limit=...)`); "host" is the resident set of the process, its high-water mark
where a peak is said.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from memfit.units import GIB, MIB, format_size

SIDE, BATCH = 224, 32


def device() -> Any:
    """TensorFlow on its GPU allocator."""
    import memfit

    memfit.devices.configure(limit="12GiB")
    import tensorflow as tf

    tf.constant(0.0)
    return tf


def in_use() -> int:
    """Bytes the device holds now."""
    import memfit

    return memfit.devices.memory()[0].current


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes the device held during a second run of some work, above what it held before."""
    import memfit

    work()
    before = in_use()
    memfit.devices.reset_peak()
    work()
    return memfit.devices.memory()[0].peak - before


def resident() -> int:
    """Bytes of host memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def resident_peak() -> int:
    """The most bytes of host memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def jpeg_files(number: int) -> list[str]:
    """Photographs of 500 x 375, of noise, in the folder of this process."""
    import tensorflow as tf

    data = tf.io.encode_jpeg(tf.cast(tf.random.uniform((375, 500, 3), 0, 255, tf.int32), tf.uint8)).numpy()
    for index in range(number):
        Path(f"{index}.jpg").write_bytes(data)
    return [f"{index}.jpg" for index in range(number)]


def decoded(path: Any) -> Any:
    """An image as networks take it."""
    import tensorflow as tf

    return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), 3), (SIDE, SIDE))


def stacked_dataset(mistake: bool) -> dict[str, int]:
    """1,000 images of 224 x 224 in a list, stacked and scaled, against a pipeline of batches."""
    import numpy as np
    import tensorflow as tf

    files = jpeg_files(1000)
    before = resident_peak()
    if mistake:
        images = []
        for path in files:
            images.append(np.array(tf.cast(decoded(path), tf.uint8)))
        images = np.array(images) / 255.0
    else:
        for _ in tf.data.Dataset.from_tensor_slices(files).map(decoded).batch(BATCH).prefetch(2):
            pass
    return {"host_peak_bytes": resident_peak() - before}


def shuffled_images(mistake: bool) -> dict[str, int]:
    """A shuffle buffer of 1,000 decoded images against one of 1,000 paths."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(jpeg_files(1000))
    data = data.map(decoded).shuffle(1000) if mistake else data.shuffle(1000).map(decoded)
    before = resident()
    iterator = iter(data.batch(BATCH))
    next(iterator)
    return {"host_bytes": resident() - before}


def prefetched_batches(mistake: bool) -> dict[str, int]:
    """prefetch(32) behind batch(32) against prefetch(2)."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(jpeg_files(2048)).map(decoded).batch(BATCH)
    before = resident()
    iterator = iter(data.prefetch(BATCH if mistake else 2))
    next(iterator)
    last = 0
    while resident() - last > 30 * MIB:  # until the buffer is full
        last = resident()
        time.sleep(3)
    return {"host_bytes": resident() - before}


def cached_array(mistake: bool) -> dict[str, int]:
    """An array of 574 MiB, sliced, batched, and cached or not."""
    import numpy as np
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(np.ones((1000, SIDE, SIDE, 3), "float32")).batch(BATCH)
    before = resident()
    data = data.cache() if mistake else data
    for _ in data:
        pass
    return {"host_bytes": resident() - before}


def cached_before_resize(mistake: bool) -> dict[str, int]:
    """500 photographs of 500 x 375 cached before or after they are resized to 128 x 128 bytes."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(jpeg_files(500)).map(
        lambda path: tf.io.decode_jpeg(tf.io.read_file(path), 3)
    )

    def small(image: Any) -> Any:
        return tf.cast(tf.image.resize(image, (128, 128)), tf.uint8)

    data = data.cache().map(small) if mistake else data.map(small).cache()
    before = resident()
    for _ in data.batch(BATCH):
        pass
    return {"host_bytes": resident() - before}


def unbatched_step(mistake: bool) -> dict[str, int]:
    """A step of a small CNN on 2,000 images of 32 x 32 at once, against batches of 32."""
    tf = device()
    import keras

    layers = [keras.layers.Conv2D(32, 3, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers, keras.layers.Flatten(), keras.layers.Dense(10)])
    images = tf.ones((2000, 32, 32, 3))

    @tf.function
    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch, training=True) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    return {"device_peak_bytes": peak_of(lambda: step(images if mistake else images[:BATCH]))}


def kept_predictions(mistake: bool) -> dict[str, int]:
    """Predictions of 200 batches of 32 with 1,000 classes, kept as tensors or as arrays."""
    tf = device()
    import keras

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1000)])
    batch, kept = tf.ones((BATCH, 64)), []
    before = in_use()
    for _ in range(200):
        result = model(batch)
        kept.append(result if mistake else result.numpy().copy())
    return {"device_bytes": in_use() - before}


def kept_losses(mistake: bool) -> dict[str, int]:
    """10,000 losses kept as tensors or as floats."""
    tf = device()
    kept = []
    step = tf.function(lambda x: tf.reduce_mean(x * x))
    batch = tf.ones((BATCH, 64))
    step(batch)
    before, host = in_use(), resident()
    for _ in range(10_000):
        loss = step(batch)
        kept.append(loss if mistake else float(loss))
    return {"device_bytes": in_use() - before, "host_bytes": resident() - host}


def functions_in_a_loop(mistake: bool) -> dict[str, int]:
    """100 times a tf.function of three dense layers: defined in the loop, or once."""
    tf = device()
    import keras

    model = keras.Sequential([keras.Input((64,)), *[keras.layers.Dense(64) for _ in range(3)]])
    batch = tf.ones((BATCH, 64))

    def forward(x: Any) -> Any:
        return model(x)

    once, kept = tf.function(forward), []
    once(batch)
    before = resident()
    for _ in range(100):
        step = tf.function(forward) if mistake else once
        step(batch)
        kept.append(step)
    return {"host_bytes": resident() - before, "traces": 100 if mistake else once.experimental_get_tracing_count()}


def changing_numbers(mistake: bool) -> dict[str, int]:
    """A tf.function called 100 times with a Python number that changes, or with a tensor."""
    tf = device()
    import keras

    model = keras.Sequential([keras.Input((64,)), *[keras.layers.Dense(64) for _ in range(3)]])
    batch = tf.ones((BATCH, 64))
    step = tf.function(lambda x, number: model(x) * tf.cast(number, tf.float32))
    step(batch, tf.constant(0))
    before = resident()
    for number in range(100):
        step(batch, number if mistake else tf.constant(number))
    return {"host_bytes": resident() - before, "traces": step.experimental_get_tracing_count()}


def models_in_a_loop(mistake: bool) -> dict[str, int]:
    """20 more models of 1.6 million parameters (6 MiB), trained for a step with Adam; cleared away each time or not."""
    tf = device()
    import gc

    import keras

    x, y = tf.ones((BATCH, 512)), tf.ones((BATCH, 512))
    peak = before = 0
    for number in range(21):
        model = keras.Sequential([keras.Input((512,)), *[keras.layers.Dense(512) for _ in range(6)]])
        model.compile("adam", "mse")
        model.fit(x, y, verbose=0)
        before = before or in_use()
        peak = max(peak, in_use())
        if not mistake:
            del model
            keras.backend.clear_session()
            gc.collect()
        del number
    return {"device_bytes": peak - before}


def predict_in_a_loop(mistake: bool) -> dict[str, int]:
    """300 predictions of one sample."""
    tf = device()
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((64,)), *[keras.layers.Dense(64) for _ in range(3)]])
    sample = np.ones((1, 64), "float32")
    model.predict(sample, verbose=0)
    model(tf.constant(sample))
    before, start = resident(), time.perf_counter()
    for _ in range(300):
        _ = model.predict(sample, verbose=0) if mistake else model(sample).numpy()
    return {"host_bytes": resident() - before, "microseconds_a_call": int((time.perf_counter() - start) / 300 * 1e6)}


def persistent_tape(mistake: bool) -> dict[str, int]:
    """What eight layers of 2 MiB of activations leave on the device after the gradients: tape alive, or deleted."""
    tf = device()
    weights = [tf.Variable(tf.eye(512)) for _ in range(8)]
    batch = tf.ones((1024, 512))
    before = in_use()
    with tf.GradientTape(persistent=True) as tape:
        x = batch
        for weight in weights:
            x = tf.tanh(x @ weight)
        loss = tf.reduce_mean(x)
    del x
    tape.gradient(loss, weights)
    if not mistake:
        del tape
    return {"device_bytes": in_use() - before}


def persistent_tape_used_once(mistake: bool) -> dict[str, int]:
    """One gradient from a persistent tape, against an ordinary one."""
    tf = device()
    weights = [tf.Variable(tf.eye(512)) for _ in range(8)]
    batch = tf.ones((1024, 512))

    def step() -> None:
        with tf.GradientTape(persistent=mistake) as tape:
            x = batch
            for weight in weights:
                x = tf.tanh(x @ weight)
            loss = tf.reduce_mean(x)
        del x
        tape.gradient(loss, weights)

    return {"device_peak_bytes": peak_of(step)}


def variables_in_a_step(mistake: bool) -> dict[str, int]:
    """A dense layer of 1,024 x 1,024 made in a model's call, 20 eager calls whose results are kept."""
    tf = device()
    import keras

    layer, x, kept = keras.layers.Dense(1024), tf.ones((1, 1024)), []
    layer(x)
    before = in_use()
    for _ in range(20):
        with tf.GradientTape() as tape:
            y = (keras.layers.Dense(1024) if mistake else layer)(x)
        kept.append((y, tape))
    return {"device_bytes": in_use() - before}


def stacked_copies(mistake: bool) -> dict[str, int]:
    """The sum of 16 tensors of 4 MiB: stacked first, or added."""
    tf = device()
    parts = [tf.ones((1024, 1024)) for _ in range(16)]
    step = tf.function(
        (lambda *each: tf.reduce_sum(tf.stack(each), axis=0)) if mistake else (lambda *each: tf.add_n(each))
    )
    return {"device_peak_bytes": peak_of(lambda: step(*parts))}


def augmentation_in_model(mistake: bool) -> dict[str, int]:
    """The training step of a small CNN on 32 images of 224 x 224, with three augmentation layers in it or without."""
    tf = device()
    import keras

    augment = [
        keras.layers.RandomFlip("horizontal"),
        keras.layers.RandomRotation(0.1),
        keras.layers.RandomZoom(0.1),
    ]
    layers = [keras.layers.Conv2D(16, 3, strides=2, activation="relu") for _ in range(3)]
    ends = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((SIDE, SIDE, 3)), *(augment if mistake else []), *layers, *ends])
    model.compile("sgd", "mse", jit_compile=False)
    x, y = tf.ones((BATCH, SIDE, SIDE, 3)), tf.ones((BATCH, 10))
    return {"device_peak_bytes": peak_of(lambda: model.train_on_batch(x, y))}


def unrolled_steps(mistake: bool) -> dict[str, int]:
    """Ten steps of a small CNN in one tf.function: a Python range, or tf.range."""
    tf = device()
    import keras

    layers = [keras.layers.Conv2D(32, 3, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((64, 64, 3)), *layers, keras.layers.Flatten(), keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    batches = tf.ones((10, 16, 64, 64, 3))

    def step(batch: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch, training=True) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )

    def steps(batches: Any) -> None:
        for number in range(10) if mistake else tf.range(10):
            step(batches[number])

    function = tf.function(steps)
    start, before = time.perf_counter(), resident()
    concrete = function.get_concrete_function(batches)
    took, host = time.perf_counter() - start, resident() - before
    return {
        "operations": _operations(concrete),
        "tracing_milliseconds": int(took * 1000),
        "host_bytes": host,
        "device_peak_bytes": peak_of(lambda: function(batches)),
    }


def _operations(concrete: Any) -> int:
    graph = concrete.graph.as_graph_def()
    return len(graph.node) + sum(len(each.node_def) for each in graph.library.function)


def fit_on_float64(mistake: bool) -> dict[str, int]:
    """A fit on 500 images that were read as bytes and divided by 255, against a pipeline of the files."""
    import keras
    import numpy as np
    import tensorflow as tf

    model = keras.Sequential([
        keras.Input((SIDE, SIDE, 3)), keras.layers.Conv2D(4, 3, strides=8), keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(1),
    ])  # fmt: skip
    model.compile("sgd", "mse", jit_compile=False)
    files = jpeg_files(500)
    before = resident_peak()
    if mistake:
        images = np.array([np.array(tf.cast(decoded(path), tf.uint8)) for path in files])
        images = images / 255.0
        model.fit(images, np.zeros(500), batch_size=BATCH, verbose=0)
    else:
        data = tf.data.Dataset.from_tensor_slices(files).map(lambda path: (decoded(path) / 255.0, 0.0))
        model.fit(data.batch(BATCH).prefetch(2), verbose=0)
    return {"host_peak_bytes": resident_peak() - before}


def validation_split(mistake: bool) -> dict[str, int]:
    """A fit on 1,000 images of 224 x 224 as float32 (574 MiB), a fifth split off by fit, or before."""
    import keras
    import numpy as np
    import tensorflow as tf

    model = keras.Sequential([
        keras.Input((SIDE, SIDE, 3)), keras.layers.Conv2D(4, 3, strides=8), keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(1),
    ])  # fmt: skip
    model.compile("sgd", "mse", jit_compile=False)
    if mistake:
        x, y = np.ones((1000, SIDE, SIDE, 3), "float32"), np.zeros(1000)
        before = resident_peak()
        model.fit(x, y, validation_split=0.2, batch_size=BATCH, verbose=0)
    else:
        one = tf.data.Dataset.range(1000).map(lambda _: (tf.ones((SIDE, SIDE, 3)), 0.0))
        before = resident_peak()
        model.fit(one.take(800).batch(BATCH), validation_data=one.skip(800).batch(BATCH), verbose=0)
    return {"host_peak_bytes": resident_peak() - before}


CASES = (
    stacked_dataset, shuffled_images, prefetched_batches, cached_array, cached_before_resize, unbatched_step,
    kept_predictions, kept_losses, functions_in_a_loop, changing_numbers, models_in_a_loop, predict_in_a_loop,
    persistent_tape, persistent_tape_used_once, variables_in_a_step, stacked_copies,
    augmentation_in_model, unrolled_steps, fit_on_float64, validation_split,
)  # fmt: skip


def measured(only: str | None) -> Iterator[dict[str, Any]]:
    """Both sides of every case."""
    for case in CASES:
        if only is not None and case.__name__ != only:
            continue
        row: dict[str, Any] = {"case": case.__name__, "what": case.__doc__}
        for side in ("mistake", "instead"):
            with tempfile.TemporaryDirectory() as folder:
                child = subprocess.run(
                    [sys.executable, str(Path(__file__).resolve()), "--child", case.__name__, side],
                    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
                    capture_output=True, text=True, check=False, cwd=folder,
                )  # fmt: skip
            last = child.stdout.strip().splitlines()[-1:]
            row[side] = json.loads(last[0]) if child.returncode == 0 and last else {"failure": child.stderr[-300:]}
        yield row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "lint_figures.json")
    parser.add_argument("--only", choices=[case.__name__ for case in CASES])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        name, side = given.child
        result = next(case for case in CASES if case.__name__ == name)(side == "mistake")
        sys.stdout.write(json.dumps(result) + "\n")
        return
    console = Console()
    table = Table("case", "measured", "mistake", "instead")
    rows = []
    for row in measured(given.only):
        rows.append(row)
        for key in row["mistake"]:
            table.add_row(row["case"], key, _shown(key, row["mistake"]), _shown(key, row["instead"]))
    console.print(table)
    if given.only is None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
        console.print(f"Wrote {given.json}")


def _shown(key: str, side: dict[str, Any]) -> str:
    value = side.get(key, "unknown")
    return (
        format_size(value) if key.endswith("_bytes") and isinstance(value, int) and value < 1024 * GIB else str(value)
    )


if __name__ == "__main__":
    main()
