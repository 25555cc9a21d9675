"""What each technique saves and costs on the GPU that is there, next to plain Keras and to what others offer.

Usage:
    python benchmarks/techniques.py [--json OUT.json] [--only resnet50/xla] [--together 8] [--steps 10]
    python benchmarks/techniques.py --predict RESULTS.json [--only resnet50/xla] [--json OUT.json]

Every case runs in a process of its own with memory growth: it trains a few steps, waits until all cases of its group
have done so, and is then timed alone. Peak is what TensorFlow's allocator counted after warm-up; a step is a batch.
The second form needs no GPU: it predicts the cases of a results file for the GPU they ran on.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from models import built, resident_bytes
from rich.console import Console
from rich.table import Table

import memfit
from memfit.framework import installed_version
from memfit.units import MIB

_MODELS = {
    "resnet50": {"model": "ResNet50", "size": 224, "batch": 64},
    "unet": {"model": "unet", "size": 256, "batch": 8},
    "transformer": {"model": "transformer", "size": 256, "batch": 16},
}
_REGIMES = {"xla": True, "graph": False}
_WARM_UP = 3
_SLICES = 8  # a micro-batch is an eighth of the batch
# Name of a variant to the plan it applies; what begins with "peer" is somebody else's, "plain" nobody's.
_PLANS: dict[str, dict[str, Any]] = {
    "empty plan": {},
    "micro_batch": {"micro_batch": _SLICES},
    "remat 4": {"remat": 4},
    "remat 6": {"remat": 6},
    "remat 10": {"remat": 10},
    "remat 6 + micro_batch": {"remat": 6, "micro_batch": _SLICES},
    "mixed_bfloat16": {"precision": "mixed_bfloat16"},
    "fused_batch_norm": {"fused_batch_norm": True},
    "fused_batch_norm + remat 6": {"fused_batch_norm": True, "remat": 6},
    "fused_batch_norm + bfloat16": {"fused_batch_norm": True, "precision": "mixed_bfloat16"},
}
_PEERS = ("peer: accumulation", "peer: recompute_grad")


@dataclass(frozen=True)
class Case:
    """One model in one regime with one variant."""

    model: str
    regime: str
    variant: str

    @property
    def name(self) -> str:
        """The case in words."""
        return f"{self.model}/{self.regime}/{self.variant}"


def cases() -> list[Case]:
    """Every case that makes sense: fused normalisation only where there is one and XLA does not fuse it."""
    found = []
    for model in _MODELS:
        for regime in _REGIMES:
            for variant in ("plain", *_PLANS, *_PEERS):
                if variant.startswith("fused") and (regime == "xla" or model == "transformer"):
                    continue
                found.append(Case(model, regime, variant))
    return found


def plan_of(case: Case) -> memfit.Plan | None:
    """The plan a case applies; `None` for plain Keras and for peers."""
    if case.variant not in _PLANS:
        return None
    values = dict(_PLANS[case.variant])
    if "micro_batch" in values:
        values["micro_batch"] = _MODELS[case.model]["batch"] // values["micro_batch"]
    return memfit.Plan(**values)


@contextmanager
def compiled(case: Case) -> Iterator[tuple[Any, int, int]]:
    """The model as the case trains it, the size of a batch and how many batches make a step."""
    row = {**_MODELS[case.model], "optimizer": "adam"}
    batches = 1
    if case.variant == "peer: accumulation":
        row, batches = {**row, "accum": _SLICES, "batch": row["batch"] // _SLICES}, _SLICES
    with built(row) as model:
        model.compile(model.optimizer, model.loss, jit_compile=_REGIMES[case.regime])
        plan = plan_of(case)
        if case.variant == "peer: recompute_grad":
            context: Any = _recompute_grad(model, 6)
        else:
            context = nullcontext() if plan is None else memfit.applied(model, plan)
        with context:
            yield model, int(row["batch"]), batches


@contextmanager
def _recompute_grad(model: Any, count: int) -> Iterator[None]:
    """`tf.recompute_grad` around the segments memfit would choose; statistics and masks are as it leaves them."""
    import tensorflow as tf

    from memfit.techniques import remat
    from memfit.techniques.layer_graph import layer_graph

    graph, last = layer_graph(model), layer_graph(model).last_use()
    parts = remat._with_the_rest(remat.segments(model, count), len(graph.calls))
    original = model.call

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not training:
            return original(inputs, training=training, mask=mask)
        values = dict(zip(graph.inputs, tf.nest.flatten(inputs), strict=True))
        for segment, recomputed in parts:
            calls = graph.calls[segment.start : segment.stop]
            made = {place for each in calls for place in each.outputs}
            needed = sorted({place for each in calls for place in each.inputs} - made)
            wanted = sorted(place for place in made if last.get(place, -1) >= segment.stop)

            def run(*tensors: Any, calls: Any = calls, needed: Any = needed, wanted: Any = wanted) -> Any:
                inside = dict(zip(needed, tensors, strict=True))
                remat._run_calls(calls, inside, {"training": True})
                return tuple(inside[place] for place in wanted)

            results = (tf.recompute_grad(run) if recomputed else run)(*(values[place] for place in needed))
            values |= dict(zip(wanted, results, strict=True))
        return values[graph.outputs[0]]

    model.call = call
    try:
        yield
    finally:
        del model.call


def run_one(case: Case, steps: int) -> dict[str, Any]:
    """Train one case in this process; waits for a line on standard input before it is timed."""
    import keras
    import numpy as np
    import tensorflow as tf

    (gpu, *_) = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpu, True)
    keras.utils.set_random_seed(0)
    info = lambda: tf.config.experimental.get_memory_info("GPU:0")  # noqa: E731
    with compiled(case) as (model, batch, batches):
        rng = np.random.default_rng(0)
        shape = model.inputs[0].shape[1:]
        floating = tf.as_dtype(model.inputs[0].dtype).is_floating
        x = rng.random((batch, *shape), dtype="float32") if floating else rng.integers(0, 8192, (batch, *shape))
        y = rng.integers(0, model.output_shape[-1], (batch, *model.output_shape[1:-1]))
        dataset = tf.data.Dataset.from_tensors((x.astype("float32" if floating else "int32"), y.astype("int32")))
        losses = model.fit(dataset.repeat(_WARM_UP * batches), verbose=0).history["loss"]
        first = info()["peak"]
        model.fit(dataset.repeat(batches), verbose=0)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        tf.config.experimental.reset_memory_stats("GPU:0")
        began = time.perf_counter()
        model.fit(dataset.repeat(steps * batches), verbose=0)
        seconds = (time.perf_counter() - began) / steps
        details = tf.config.experimental.get_device_details(gpu)
        return {
            "measured_steady_peak_bytes": info()["peak"],
            "measured_first_step_peak_bytes": first,
            "step_seconds": seconds,
            "loss": float(losses[0]),
            "gpu": details.get("device_name"),
        }


def run_together(group: list[Case], steps: int, timeout: float = 400) -> Iterator[dict[str, Any]]:
    """Warm a group of cases up side by side, then time one after the other."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--one", json.dumps(vars(case)), "--steps", str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for case in group
    ]
    ready = [_wait_for(child, "ready") for child in children]
    for case, child, is_ready in zip(group, children, ready, strict=True):
        outcome: dict[str, Any] = vars(case) | {"name": case.name}
        try:
            out, err = child.communicate("go\n" if is_ready else "", timeout=timeout)
            found = [line for line in out.splitlines() if line.startswith("{")]
            outcome |= json.loads(found[-1]) if found else {"failure": _last_words(err)}
        except subprocess.TimeoutExpired:
            child.kill()
            outcome["failure"] = f"not done after {timeout:g} s"
        yield outcome


def _wait_for(child: Any, word: str) -> bool:
    return any(line.strip() == word for line in iter(child.stdout.readline, ""))


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "it left no message")[
        :300
    ]


def predict(outcomes: list[dict[str, Any]], gpu: str) -> Iterator[dict[str, Any]]:
    """Each measured case with what the estimate of its planned step says."""
    for each in outcomes:
        case = Case(each["model"], each["regime"], each["variant"])
        if "failure" in each or (plan_of(case) is None and case.variant != "plain"):
            continue
        with compiled(case) as (model, batch, _):
            kept = resident_bytes(model, batch)
            found = memfit.estimate(model, batch_size=batch, gpu=gpu, jit=_REGIMES[case.regime], resident=kept)
            predicted = found.steady_peak.value
        yield {**each, "predicted_steady_peak_bytes": predicted}


def show_predictions(outcomes: list[dict[str, Any]]) -> None:
    """Measured and predicted side by side."""
    table = Table("case", "measured MiB", "predicted MiB", "error")
    for each in outcomes:
        measured, predicted = each["measured_steady_peak_bytes"], each["predicted_steady_peak_bytes"]
        error = predicted / measured - 1
        table.add_row(each["name"], f"{measured / MIB:.0f}", f"{predicted / MIB:.0f}", f"{error:+.1%}")
    Console(width=120).print(table)


def show(outcomes: list[dict[str, Any]]) -> None:
    """Peak and step time of each case against plain Keras."""
    table = Table("case", "peak MiB", "of plain", "first step MiB", "step ms", "of plain", "loss")
    plain = {(each["model"], each["regime"]): each for each in outcomes if each["variant"] == "plain"}
    for each in outcomes:
        base = plain.get((each["model"], each["regime"]))
        if "failure" in each:
            table.add_row(each["name"], f"[red]{each['failure']}[/]")
            continue
        peak, seconds = each["measured_steady_peak_bytes"], each["step_seconds"]
        known = base is not None and "failure" not in base
        table.add_row(
            each["name"],
            f"{peak / MIB:.0f}",
            f"{peak / base['measured_steady_peak_bytes']:.0%}" if known and base else "",
            f"{each['measured_first_step_peak_bytes'] / MIB:.0f}",
            f"{seconds * 1000:.1f}",
            f"{seconds / base['step_seconds']:.2f}" if known and base else "",
            f"{each['loss']:.6f}",
        )
    Console(width=150).print(table)


def main() -> None:
    """Run the cases and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--together", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--one")
    parser.add_argument("--predict", type=Path)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write(json.dumps(run_one(Case(**json.loads(options.one)), options.steps)) + "\n")
        return
    if options.predict:
        measured = [case for run in json.loads(options.predict.read_text())["runs"] for case in run["cases"]]
        newest = {case["name"]: case for case in measured if "failure" not in case}
        chosen = [
            case for name, case in newest.items() if not options.only or any(part in name for part in options.only)
        ]
        predicted = []
        for outcome in predict(chosen, chosen[0]["gpu"]):
            predicted.append(outcome)
            if options.json:
                options.json.write_text(json.dumps(predicted, indent=1) + "\n", encoding="utf-8")
        show_predictions(predicted)
        return
    wanted = [case for case in cases() if not options.only or any(part in case.name for part in options.only)]
    outcomes: list[dict[str, Any]] = []
    for start in range(0, len(wanted), options.together):
        outcomes += run_together(wanted[start : start + options.together], options.steps)
        show(outcomes[start:])
        if options.json:
            versions = {name: installed_version(name) for name in ("tensorflow", "keras")}
            record = {"date": datetime.now(timezone.utc).date().isoformat(), "versions": versions, "cases": outcomes}
            options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    show(outcomes)


if __name__ == "__main__":
    main()
