"""What recording costs: the time of a step with and without `memfit.Recorder`, side by side in one run.

Usage:
    python benchmarks/recording.py [--json OUT.json] [--only cnn] [--rounds 30] [--seconds 0.5]

Each model trains in turns with and without the recorder, in one process, so that both see the same machine; which
comes first changes every round. The overhead is the median over the rounds of the difference of the two; "in hooks" is
the processor time of the recorder itself, which a busy machine disturbs less. Measured twice: in the first 512 steps,
where every step writes a line, and in a long run, where few do. Profiled steps are left out: they are few and take what
the profiler takes, which is shown beside it; so is what a fit costs at its end, where the process is looked through for
leaks. "asked at end" is what any callback costs that Keras calls at a step's end, and so waits for the device after
every step: the recorder is none. The bar is 2 % of the step time.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import memfit
from memfit.framework import installed_version, keras, tensorflow
from memfit.observe.record import read_record

_BAR = 0.02
_LONG_RUN = 20_000
_MODELS = ("mlp", "cnn", "resnet50")


def built(name: str) -> tuple[Any, Any]:
    """A compiled model and one batch for it."""
    tf, layers = tensorflow(), keras().layers
    keras().utils.set_random_seed(0)
    if name == "mlp":
        shape, size = (784,), 128
        sizes = [layers.Dense(width, activation="relu") for width in (512, 256)]
        model = keras().Sequential([keras().Input(shape), *sizes, layers.Dense(10)])
    elif name == "cnn":
        shape, size = (32, 32, 3), 32
        convolutions = [layers.Conv2D(width, 3, strides=2, activation="relu") for width in (32, 64)]
        last = [layers.GlobalAveragePooling2D(), layers.Dense(10)]
        model = keras().Sequential([keras().Input(shape), *convolutions, *last])
    else:
        shape, size = (224, 224, 3), 64 if tf.config.list_logical_devices("GPU") else 2
        model = keras().applications.ResNet50(weights=None, classes=10, classifier_activation=None, input_shape=shape)
    model.compile("adam", keras().losses.SparseCategoricalCrossentropy(from_logits=True))
    batch = tf.random.stateless_uniform((size, *shape), (0, 0)), tf.zeros((size,), "int32")
    return model, tf.data.Dataset.from_tensors(batch).cache().repeat()


def measured(name: str, rounds: int, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """The step times of a model in turns, in the first steps of a run and in a long one."""
    model, data = built(name)
    return [in_turns(name, model, data, rounds, seconds, folder, steps_before=before) for before in (0, _LONG_RUN)]


def in_turns(
    name: str, model: Any, data: Any, rounds: int, seconds: float, folder: Path, *, steps_before: int
) -> dict[str, Any]:
    """The step times of a model with and without a recorder that has seen so many steps already."""

    def step_seconds(count: int, callbacks: list[Any]) -> float:
        # From the first step's beginning to the last one's end, which an epoch's end waits for.
        times: list[float] = []
        clock = keras().callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, **_: None if batch else times.append(time.perf_counter()),
            on_epoch_end=lambda *_, **__: times.append(time.perf_counter()),
        )
        model.fit(data, steps_per_epoch=count, epochs=1, verbose=0, callbacks=[clock, *callbacks])
        fits.append(time.perf_counter() - times[-1])
        return (times[-1] - times[0]) / count

    fits: list[float] = []

    step_seconds(3, [])
    count = max(5, min(500, round(seconds / step_seconds(5, []))))
    plain, recorded, hooks, waiting, at_the_end = [], [], [], [], []

    def with_recorder(path: Path) -> None:
        # One of its own for each round, begun before the clock is.
        recorder = memfit.Recorder(path, profile_steps=0)
        step_seconds(1, [recorder])
        for _ in range(steps_before):
            recorder._begun().recording.step("train", 1, 1e-3, 1, 1, when=time.perf_counter())
        spent = timed_hooks(recorder)
        recorded.append(step_seconds(count, [recorder]))
        at_the_end.append(fits[-1])
        hooks.append(sum(spent) / count)

    def without_recorder() -> None:
        step_seconds(1, [])
        plain.append(step_seconds(count, []))

    def with_a_callback_at_the_end() -> None:
        waiting.append(
            step_seconds(count, [keras().callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: None)])
        )

    for number in range(rounds):
        turns = [without_recorder, with_a_callback_at_the_end]
        turns.append(lambda path=folder / f"{name}-{steps_before}-{number}.memfit.jsonl": with_recorder(path))
        for turn in turns if number % 2 else reversed(turns):
            turn()
    differences = sorted(with_it / without - 1 for with_it, without in zip(recorded, plain, strict=True))
    path = folder / f"{name}-{steps_before}-profiled.memfit.jsonl"
    # The third step and the one after it have both been traced; the difference in time is the profiler's.
    step_seconds(5, [memfit.Recorder(path, profile_steps=(3,))])
    (timeline,) = read_record(path).timelines or (None,)
    return {
        "model": name,
        "steps_before": steps_before,
        "steps_per_round": count,
        "rounds": rounds,
        "plain_step_seconds": statistics.median(plain),
        "recorded_step_seconds": statistics.median(recorded),
        "hooks_seconds": statistics.median(hooks),
        "hooks_share": statistics.median(hooks) / statistics.median(plain),
        "overhead": statistics.median(differences),
        "asked_at_end_overhead": statistics.median(waiting) / statistics.median(plain) - 1,
        "fit_end_seconds": statistics.median(at_the_end),
        "overhead_quartiles": [differences[len(differences) // 4], differences[-len(differences) // 4]],
        "profiled_step_seconds": None if timeline is None else timeline.seconds,
        "timeline_points": None if timeline is None else len(timeline.points),
        "record_bytes_per_step": round(
            (folder / f"{name}-{steps_before}-0.memfit.jsonl").stat().st_size / (count + steps_before + 1)
        ),
    }


def timed_hooks(recorder: Any) -> list[float]:
    """Have a recorder's hook at each step note how long it takes."""
    spent: list[float] = []

    def timed(hook: Any) -> Any:
        def call(*arguments: Any, **settings: Any) -> None:
            began = time.thread_time()
            hook(*arguments, **settings)
            spent.append(time.thread_time() - began)

        return call

    recorder.on_train_batch_begin = timed(recorder.on_train_batch_begin)
    return spent


def show(outcomes: list[dict[str, Any]], device: str) -> None:
    """Print them as a table."""
    columns = (
        "model",
        "plain ms",
        "recorded ms",
        "overhead",
        "quartiles",
        "in hooks",
        "asked at end",
        "fit end",
        "bytes/step",
        "profiled ms",
    )
    table = Table(*columns, title=device)
    for each in outcomes:
        low, high = each["overhead_quartiles"]
        profiled = each["profiled_step_seconds"]
        table.add_row(
            each["model"] + (", long run" if each["steps_before"] else ", first steps"),
            f"{1000 * each['plain_step_seconds']:.3f}",
            f"{1000 * each['recorded_step_seconds']:.3f}",
            f"[{'green' if each['overhead'] <= _BAR else 'red'}]{each['overhead']:+.2%}",
            f"{low:+.2%} .. {high:+.2%}",
            f"{1e6 * each['hooks_seconds']:.0f} us, {each['hooks_share']:.2%}",
            f"{each['asked_at_end_overhead']:+.2%}",
            f"{each['fit_end_seconds']:.2f} s",
            str(each["record_bytes_per_step"]),
            "unknown" if profiled is None else f"{1000 * profiled:.2f}",
        )
    Console(width=120).print(table)


def main() -> int:
    """Measure, and say whether the bar is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", choices=_MODELS)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    # A GPU's allocator, without one.
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="memfit-recording-") as folder:
        for name in options.only or _MODELS:
            outcomes += measured(name, options.rounds, options.seconds, Path(folder))
        run = read_record(next(Path(folder).glob("*.memfit.jsonl"))).run
    device = f"{run.device}, {run.device_name}"
    show(outcomes, device)
    if options.json:
        versions = {"tensorflow": run.tensorflow, "keras": installed_version("keras")}
        date = datetime.now(timezone.utc).date().isoformat()
        record = {"date": date, "device": device, "versions": versions, "bar": _BAR, "cases": outcomes}
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(each["overhead"] > _BAR for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
