"""Predicted and measured peaks on this machine's CPU: 20 networks, plain, with remat and in slices, oneDNN on and off.

Usage:
    python benchmarks/cpu_accuracy.py [--json OUT.json] [--only vit] [--together 2]

Each case has a process of its own, which predicts the step, then trains it on TensorFlow's BFC allocator with as many
threads as TensorFlow takes by default, and reads the peak of the steps after the first three.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from models import batch_of, built
from rich.console import Console
from rich.table import Table
from versions import versions

import memfit
from memfit.framework import keras, tensorflow
from memfit.hardware.onednn import VARIABLE
from memfit.units import MIB

_BAR = 0.95
_TIMEOUT = 600
_WARM_UP, _STEPS = 3, 10
_LIMIT = "8GiB"
# Model, size and batch: a few hundred MiB each, so that single kernels do not hide behind weights.
_NETWORKS = (
    ("ResNet50", 64, 16),
    ("MobileNetV2", 96, 16),
    ("unet", 64, 4),
    ("vit", 96, 8),
    ("wavenet", 256, 4),
    ("convmixer", 32, 16),
    ("gpt", 64, 4),
    ("translation", 32, 8),
    ("bilstm", 50, 32),
    ("video", 32, 4),
    ("super_resolution", 24, 8),
    ("unet_plus_plus", 64, 4),
    ("text_transformer", 128, 32),
    ("lstm_series", 40, 32),
    ("gru_text", 60, 32),
    ("seq2seq", 30, 16),
    ("text_cnn", 500, 32),
    ("small_cnn", 96, 32),
    ("autoencoder", 96, 16),
    ("siamese", 64, 64),
)


def _plans(batch: int) -> dict[str, dict[str, Any]]:
    return {"plain": {}, "remat": {"remat": 4}, "micro_batch": {"micro_batch": batch // 4}}


def measure(row: dict[str, Any]) -> dict[str, Any]:
    """Predict and train one case in this process."""
    memfit.devices.configure(limit=_LIMIT)
    keras().utils.set_random_seed(0)
    with built(row, jit=False) as model:
        batch = batch_of(row, model)
        resident = sum(each.nbytes for each in keras().tree.flatten(batch))
        plan = memfit.Plan(**_plans(row["batch"])[row["plan"]])
        with memfit.applied(model, plan, numerics="close") if plan.techniques else nullcontext():
            peak = memfit.estimate(model, row["batch"], gpu="cpu", jit=False, data=batch, resident=resident).steady_peak
            data = tensorflow().data.Dataset.from_tensors(batch)
            model.fit(data.repeat(_WARM_UP), verbose=0)
            memfit.devices.reset_peak()
            model.fit(data.repeat(_STEPS), verbose=0)
            measured = memfit.devices.memory()[0].peak
    return {"measured_bytes": measured, "predicted_bytes": peak.value, "low_bytes": peak.low, "high_bytes": peak.high}


def measure_apart(row: dict[str, Any]) -> dict[str, Any]:
    """Predict and train one case in a new process; what went wrong is part of the answer."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", VARIABLE: "1" if row["onednn"] else "0"}
    command = [sys.executable, __file__, "--one", json.dumps(row)]
    try:
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return {**row, "failure": f"not done after {_TIMEOUT} s"}
    answers = [line for line in child.stdout.splitlines() if line.startswith("{")]
    return {**row, **(json.loads(answers[-1]) if answers else {"failure": child.stderr[-300:]})}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="only models whose name contains this")
    parser.add_argument("--together", type=int, default=1, help="cases at a time; memory is counted per process")
    given = parser.parse_args()
    rows = [
        {"model": model, "size": size, "batch": batch, "plan": plan, "onednn": onednn}
        for model, size, batch in _NETWORKS
        if given.only in model
        for plan in _plans(batch)
        for onednn in (True, False)
    ]
    with ThreadPoolExecutor(given.together) as pool:
        cases = list(pool.map(measure_apart, rows))
    summary = _show(cases)
    if given.json:
        record = {
            "date": datetime.now(tz=timezone.utc).date().isoformat(),
            "versions": versions(),
            "bar": _BAR,
            **summary,
            "cases": cases,
        }
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _show(cases: list[dict[str, Any]]) -> dict[str, Any]:
    table = Table("network", "plan", "oneDNN", "measured MiB", "predicted", "from", "to", "error", "")
    errors, inside = [], 0
    for case in cases:
        name = f"{case['model']} {case['size']} b{case['batch']}"
        if "failure" in case:
            table.add_row(name, case["plan"], str(case["onednn"]), "", "", "", "", "", case["failure"][-80:])
            continue
        measured, predicted, low, high = (case[f"{each}_bytes"] for each in ("measured", "predicted", "low", "high"))
        errors.append(predicted / measured - 1)
        is_inside = low <= measured <= high
        inside += is_inside
        sizes = [f"{each / MIB:.0f}" for each in (measured, predicted, low, high)]
        table.add_row(
            name, case["plan"], str(case["onednn"]), *sizes, f"{errors[-1]:+.1%}", "" if is_inside else "outside"
        )
    Console(width=140).print(table)
    found = {
        "inside_share": inside / len(cases),
        "median_error": median(map(abs, errors)),
        "worst_error": max(errors, key=abs),
    }
    sys.stdout.write(f"{inside} of {len(cases)} inside their bands; {found}\n")
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(json.dumps(measure(json.loads(sys.argv[2]))) + "\n")
        sys.stdout.flush()
        os._exit(0)  # TensorFlow's threads take their time
    main()
