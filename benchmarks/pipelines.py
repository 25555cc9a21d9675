"""Image pipelines side by side: how fast the first and the second epoch come, and how much host memory they take.

Usage:
    python benchmarks/pipelines.py [--json OUT.json] [--files 4000] [--size 224] [--batch 64] [--rounds 3]
    python benchmarks/pipelines.py --gpu [--json OUT.json]

Photographs of realistic size are generated first, the same ones each time: 4,000 JPEGs of 100 KB on average, from
500 x 375 to 1024 x 768 pixels. Every pipeline reads them in a process of its own, one after the other, in rounds whose
order changes, from the system's file cache; a rate is that of the round in which the rest of the machine disturbed
least, the highest one, and all rounds are in the JSON. An epoch is from asking for its iterator to its last batch;
building the pipeline, which here means looking at some files, is shown beside it. "CPU ms" is the processor time of a
sample in the first epoch, at its least. Memory is how far the process's resident set rose at most above what it was
when TensorFlow was loaded and had run one operation.

Bars: the first epoch at least as fast as the best of the three others (hand-written tf.data, Keras's
`image_dataset_from_directory`, a Keras `PyDataset`), the second 1.5 times as fast where the cache fits; memory within
the budget and 10 %. The same with `Dataset.cache()` is shown for comparison. With `--gpu`: what a pipeline takes of the
device.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import memfit
from memfit.framework import installed_version, keras, tensorflow
from memfit.units import format_size

_PEERS = ("tf.data by hand", "image_dataset_from_directory", "PyDataset")
_CACHED = "tf.data with cache()"
_RATES = ("first_epoch_per_second", "second_epoch_per_second")
_BUDGETS = ("256MiB", "1GiB", "4GiB")
_FIRST_BAR, _SECOND_BAR, _MEMORY_BAR = 1.0, 1.5, 1.1
_SIZES = ((375, 500), (480, 640), (600, 800), (768, 1024))
_SCENES, _CLASSES, _QUALITY = 12, 10, 93


def photographs(folder: Path, count: int) -> float:
    """Write pictures with detail at every scale, as photographs have; the mean size of a file."""
    tf = tensorflow()
    random = tf.random.Generator.from_seed(0)
    scenes = []
    for _ in range(_SCENES):
        scene = tf.zeros([1152, 1536, 3])
        for octave in range(1, 11):
            grain = random.normal([min(2**octave, 1152), min(2**octave * 4 // 3, 1536), 3])
            scene += tf.image.resize(grain, [1152, 1536], method="bicubic") * 0.78**octave
        low, high = tf.reduce_min(scene), tf.reduce_max(scene)
        scenes.append(tf.cast(255 * (scene - low) / (high - low), tf.uint8))
    for index in range(count):
        height, width = _SIZES[index % len(_SIZES)]
        place = random.uniform([2], maxval=2**20, dtype=tf.int32).numpy()
        top, left = int(place[0]) % (1152 - height), int(place[1]) % (1536 - width)
        picture = scenes[index % _SCENES][top : top + height, left : left + width]
        path = folder / f"class{index % _CLASSES}" / f"{index:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_jpeg(picture, quality=_QUALITY).numpy())
    return sum(path.stat().st_size for path in folder.rglob("*.jpg")) / count


def _loaded(path: Any, size: int) -> Any:
    tf = tensorflow()
    return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (size, size))


def by_hand(folder: Path, size: int, batch: int, *, cache: bool = False) -> Any:
    """What the guides of TensorFlow show."""
    tf = tensorflow()
    paths = sorted(str(path) for path in folder.rglob("*.jpg"))
    names = sorted({Path(path).parent.name for path in paths})
    labels = [names.index(Path(path).parent.name) for path in paths]

    def load(path: Any, label: Any) -> Any:
        return _loaded(path, size), label

    dataset = tf.data.Dataset.from_tensor_slices((paths, labels))
    if not cache:
        dataset = dataset.shuffle(len(paths))
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    if cache:
        dataset = dataset.cache().shuffle(1000)
    return dataset.batch(batch).prefetch(tf.data.AUTOTUNE)


def py_dataset(folder: Path, size: int, batch: int) -> Any:
    """A Keras `PyDataset`, iterated as `fit` does."""
    import numpy as np
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    paths = sorted(str(path) for path in folder.rglob("*.jpg"))
    names = sorted({Path(path).parent.name for path in paths})

    class Photographs(keras().utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return -(-len(paths) // batch)

        def __getitem__(self, index: int) -> Any:
            chosen = paths[index * batch : (index + 1) * batch]
            images = [_loaded(path, size) for path in chosen]
            return np.stack(images), np.array([names.index(Path(path).parent.name) for path in chosen])

    data = Photographs(workers=os.cpu_count() or 1, max_queue_size=4)
    adapter = PyDatasetAdapter(data, shuffle=True)

    class Epochs:
        def __iter__(self) -> Iterator[Any]:
            adapter.on_epoch_begin()
            made = iter(adapter.get_tf_dataset())
            for _ in range(len(data)):
                yield next(made)
            adapter.on_epoch_end()

    return Epochs()


def builders(folder: Path, size: int, batch: int) -> dict[str, Callable[[], Any]]:
    """Each pipeline by its name."""

    def ours(budget: str, **settings: Any) -> Callable[[], Any]:
        return lambda: memfit.data.image_folder(
            folder, image_size=size, batch_size=batch, ram_budget=budget, seed=0, **settings
        )

    return {
        **{f"memfit.data, {budget}": ours(budget) for budget in _BUDGETS},
        f"memfit.data, {_BUDGETS[-1]}, exact": ours(_BUDGETS[-1], exact=True),
        _PEERS[0]: lambda: by_hand(folder, size, batch),
        _PEERS[1]: lambda: keras().utils.image_dataset_from_directory(
            folder, image_size=(size, size), batch_size=batch, verbose=False
        ),
        _PEERS[2]: lambda: py_dataset(folder, size, batch),
        _CACHED: lambda: by_hand(folder, size, batch, cache=True),
    }


@contextmanager
def watched_memory() -> Iterator[Callable[[], int]]:
    """The most the resident set rose above what it is now, looked at a hundred times a second."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    start, peak, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], resident() - start)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: max(peak[0], resident() - start)
    finally:
        done.set()
        thread.join()


def child(name: str, folder: Path, size: int, batch: int) -> dict[str, Any]:
    """Build one pipeline and go through two epochs of it."""
    tf, build = tensorflow(), builders(folder, size, batch)[name]
    keras()
    tf.constant(1) + 1
    with watched_memory() as grown:
        began = time.perf_counter()
        dataset = build()
        built = time.perf_counter() - began
        rates, processor = [], []
        for _ in range(2):
            began, used, count = time.perf_counter(), time.process_time(), 0
            for _images, labels in dataset:
                count += int(labels.shape[0])
                # The end of the loop would count the end of the iterator, which may wait for tf.data's autotuner.
                last = time.perf_counter()
            rates.append(count / (last - began))
            processor.append((time.process_time() - used) / count)
        result: dict[str, Any] = {
            "pipeline": name,
            "samples": count,
            "build_seconds": built,
            "first_epoch_per_second": rates[0],
            "second_epoch_per_second": rates[1],
            "first_epoch_processor_seconds": processor[0],
            "second_epoch_processor_seconds": processor[1],
            "peak_growth_bytes": grown(),
        }
    if name.startswith("memfit"):
        layout = memfit.data.layout(dataset)
        decision = layout.of("train")
        result["ram_budget_bytes"] = layout.ram_budget
        result["predicted_bytes"] = layout.ram_bytes
        result["cache"] = f"{decision.cache} {decision.cached_samples}/{decision.split.samples}"
    return result


def _warm(folder: Path) -> None:
    """Have the files in the system's file cache: pipelines are compared here, not what the disk had to do before."""
    for path in folder.rglob("*.jpg"):
        path.read_bytes()


def in_child(*arguments: str) -> dict[str, Any]:
    """Run this program in a process of its own and read what it measured."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measured(folder: Path, size: int, batch: int, rounds: int, only: list[str] | None) -> list[dict[str, Any]]:
    """Every pipeline, each round in the other order."""
    names = [name for name in builders(folder, size, batch) if not only or any(each in name for each in only)]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    arguments = ["--folder", str(folder), "--size", str(size), "--batch", str(batch)]
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            _warm(folder)
            runs[name].append(in_child("--child", name, *arguments))
    outcomes = [_best(each) for each in runs.values()]
    for rate in _RATES:
        peers = [each[rate] for each in outcomes if each["pipeline"] in _PEERS]
        for each in outcomes:
            each[f"{rate}_to_best_peer"] = each[rate] / max(peers) if peers else None
    return outcomes


def _best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The rounds of one pipeline as one: the highest rates, the least processor time, the largest memory."""
    least = ("build_seconds", "first_epoch_processor_seconds", "second_epoch_processor_seconds")
    return {
        **runs[0],
        **{key: min(run[key] for run in runs) for key in least},
        **{key: max(run[key] for run in runs) for key in (*_RATES, "peak_growth_bytes")},
        "rates_of_each_round": [[run[rate] for rate in _RATES] for run in runs],
    }


def kept(outcome: dict[str, Any]) -> dict[str, bool]:
    """Which bars one of ours keeps."""
    budget, bars = outcome.get("ram_budget_bytes"), {}
    if budget is None:
        return {}
    first, second = (outcome.get(f"{rate}_to_best_peer") for rate in _RATES)
    if first is not None and "exact" not in outcome["pipeline"]:
        bars["first epoch"] = first >= _FIRST_BAR
    if second is not None and outcome["cache"] == f"decoded {outcome['samples']}/{outcome['samples']}":
        bars["second epoch"] = second >= _SECOND_BAR
    bars["memory"] = outcome["peak_growth_bytes"] <= _MEMORY_BAR * budget
    return bars


def show(outcomes: list[dict[str, Any]], title: str) -> None:
    """Print them as a table."""
    columns = ("pipeline", "build s", "epoch 1 /s", "x best", "epoch 2 /s", "x best", "CPU ms", "peak growth", "cache")
    table = Table(*columns, title=title)
    for each in outcomes:
        missed = [bar for bar, fine in kept(each).items() if not fine]
        cells = [each["pipeline"], f"{each['build_seconds']:.1f}"]
        for rate in _RATES:
            share = each.get(f"{rate}_to_best_peer")
            cells += [f"{each[rate]:.0f}", "" if share is None else f"{share:.2f}"]
        growth = format_size(each["peak_growth_bytes"]) + (f" [red]({', '.join(missed)})" if missed else "")
        table.add_row(*cells, f"{1000 * each['first_epoch_processor_seconds']:.2f}", growth, each.get("cache", ""))
    Console(width=140).print(table)


def gpu_child(kind: str, folder: Path, size: int, batch: int) -> dict[str, Any]:
    """Train two epochs with validation; the device's own peak, and what of it the pipeline is."""
    tf, layers = tensorflow(), keras().layers
    keras().utils.set_random_seed(0)
    augmentation = [layers.RandomFlip(), layers.RandomRotation(0.1), layers.RandomContrast(0.2)]
    inside = augmentation if kind == "augmentation in the model" else []
    convolutions = [layers.Conv2D(32, 3, strides=2, activation="relu") for _ in range(3)]
    model = keras().Sequential(
        [
            keras().Input((size, size, 3), dtype="uint8"),
            layers.Rescaling(1 / 255),
            *inside,
            *convolutions,
            layers.GlobalAveragePooling2D(),
            layers.Dense(_CLASSES),
        ]
    )
    loss = keras().losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    if kind == "the same batch again and again":
        with tf.device("CPU:0"):
            batch_of_zeros = tf.zeros([batch, size, size, 3], tf.uint8), tf.zeros([batch], tf.int32)
            train = tf.data.Dataset.from_tensors(batch_of_zeros)
        train, validation = train.repeat(20), train.repeat(5)
    else:
        augment = keras().Sequential(augmentation) if kind == "memfit.data" else None
        train, validation = memfit.data.image_folder(
            folder, image_size=size, batch_size=batch, validation_split=0.2, ram_budget="1GiB", augment=augment, seed=0
        )
    memfit.devices.reset_peak()
    model.fit(train, validation_data=validation, epochs=2, verbose=0, shuffle=False)
    (device, *_) = memfit.devices.memory()
    return {
        "pipeline": kind,
        "device": device.device,
        "peak_bytes": device.peak,
        "batch_bytes": batch * size * size * 3,
    }


def gpu(folder: Path, size: int, batch: int) -> list[dict[str, Any]]:
    """What pipelines take of the device, next to a step that is fed from nowhere."""
    kinds = ("the same batch again and again", "memfit.data", "augmentation in the model")
    outcomes = [
        in_child("--gpu-child", kind, "--folder", str(folder), "--size", str(size), "--batch", str(batch))
        for kind in kinds
    ]
    table = Table("fed by", "device", "peak", "above the first", "one batch of uint8")
    for each in outcomes:
        above = each["peak_bytes"] - outcomes[0]["peak_bytes"]
        table.add_row(
            each["pipeline"],
            each["device"],
            *[format_size(size) for size in (each["peak_bytes"], above, each["batch_bytes"])],
        )
    Console(width=120).print(table)
    return outcomes


def main() -> int:
    """Measure, and say whether the bars are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="Part of a pipeline's name.")
    parser.add_argument("--folder", type=Path, help="Photographs that are there already.")
    parser.add_argument("--note", default="", help="A word on the machine, for the JSON.")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--gpu-child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gpu:
        # Two epochs of these show all there is to see on a device.
        options.files = min(options.files, 400)
    if options.child or options.gpu_child:
        measure = child if options.child else gpu_child
        sys.stdout.write(
            "\n"
            + json.dumps(measure(options.child or options.gpu_child, options.folder, options.size, options.batch))
            + "\n"
        )
        return 0
    with tempfile.TemporaryDirectory(prefix="memfit-pipelines-") as temporary:
        folder = options.folder or Path(temporary)
        if not options.folder:
            mean = photographs(folder, options.files)
            Console(stderr=True).print(f"wrote {options.files} photographs of {format_size(int(mean))} on average")
        if options.gpu:
            cases = gpu(folder, options.size, options.batch)
        else:
            cases = measured(folder, options.size, options.batch, options.rounds, options.only)
            show(cases, f"{options.files} photographs, {options.size} pixels, batches of {options.batch}")
    if options.json:
        record = {
            "date": datetime.now(timezone.utc).date().isoformat(),
            "note": options.note,
            "processors": os.cpu_count(),
            "versions": {"tensorflow": tensorflow().__version__, "keras": installed_version("keras")},
            "files": options.files,
            "image_size": options.size,
            "batch_size": options.batch,
            "bars": {"first_epoch": _FIRST_BAR, "second_epoch": _SECOND_BAR, "memory": _MEMORY_BAR},
            "cases": cases,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.gpu:
        return 0
    return int(not all(fine for each in cases for fine in kept(each).values()))


if __name__ == "__main__":
    sys.exit(main())
