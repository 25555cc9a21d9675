"""Measure what training steps take on the GPU that is there, one new process for each case: a truth file.

Usage:
    python benchmarks/measure.py CASES.json OUT.json [--together 8] [--only vit] [--predict here]

A case has `model`, `size`, `batch`, `jit`, and where they differ from the default `optimizer`, `policy` and
`workspace_mb` (the cap that `memfit.devices.configure(workspace=...)` sets). Measured are, in bytes, `base` (before
training), `first_peak` (tracing, compiling and autotuning), `current` (between steps) and `steady_peak` (over ten steps
after the first three). With `--predict here` memfit predicts each case on this GPU, in the process that then trains;
with `--predict child` in a process that keeps off the GPU, as the command line does, and nothing is trained.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast, get_args

from models import Row, batch_of, built, resident_bytes
from versions import versions

import memfit
from memfit.framework import import_for_predicting

Predicting = Literal["no", "here", "child"]

_TIMEOUT = 420
_WARM_UP, _STEPS = 3, 10


def measure(row: Row, predict: Predicting = "no") -> dict[str, Any]:
    """Train one case in this process, predict it, or both."""
    import tensorflow as tf

    if predict == "child":
        import_for_predicting()
        with built(row, jit=row["jit"]) as model:
            return _predicted(row, model)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise SystemExit("TensorFlow sees no GPU here")
    if row.get("workspace_mb"):
        memfit.devices.configure(growth=True, workspace=f"{row['workspace_mb']}MiB")
    else:
        # As people do it, without what memfit would set besides.
        tf.config.experimental.set_memory_growth(gpus[0], True)
    import keras

    keras.utils.set_random_seed(0)
    with built(row, jit=row["jit"]) as model:
        batch = batch_of(row, model)
        found: dict[str, Any] = _predicted(row, model) if predict == "here" else {}
        data = tf.data.Dataset.from_tensors(batch if len(batch) > 1 else batch[0])
        found["base"] = memfit.devices.memory()[0].current
        memfit.devices.reset_peak()
        began = time.perf_counter()
        model.fit(data.repeat(_WARM_UP), verbose=0)
        found["first_seconds"] = round(time.perf_counter() - began, 1)
        memory = memfit.devices.memory()[0]
        found |= {"first_peak": memory.peak, "current": memory.current}
        memfit.devices.reset_peak()
        began = time.perf_counter()
        model.fit(data.repeat(_STEPS), verbose=0)
        found["step_seconds"] = round((time.perf_counter() - began) / _STEPS, 4)
        found["steady_peak"] = memfit.devices.memory()[0].peak
        return found


def _predicted(row: Row, model: Any) -> dict[str, Any]:
    batch = batch_of(row, model)
    began = time.perf_counter()
    estimate = memfit.estimate(
        model,
        batch_size=row["batch"],
        jit=row["jit"],
        data=batch if len(batch) > 1 else batch[0],
        resident=resident_bytes(row, model),
    )
    peak, first = estimate.steady_peak, estimate.first_step_peak
    return {
        "method": estimate.method,
        "predicted": peak.value,
        "low": peak.low,
        "high": peak.high,
        "predicted_first": first.value,
        "first_low": first.low,
        "first_high": first.high,
        "predicting_seconds": round(time.perf_counter() - began, 1),
    }


def measure_apart(row: Row, predict: Predicting) -> dict[str, Any]:
    """Train one case in a new process; what went wrong is part of the answer."""
    command = [sys.executable, __file__, "--one", json.dumps(row), predict]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    try:
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return {**row, "error": f"no answer in {_TIMEOUT} s"}
    found = [line for line in child.stdout.splitlines() if line.startswith("{")]
    return {**row, **(json.loads(found[-1]) if found else {"error": child.stderr[-1500:]})}


def main() -> None:
    """Measure every case and write the truth file after each."""
    parser = argparse.ArgumentParser(description="Measure training steps on a GPU.")
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--together", type=int, default=1, help="cases at a time; memory is counted per process")
    parser.add_argument("--only", default="", help="only models whose name contains this")
    parser.add_argument("--predict", choices=get_args(Predicting), default="no", help="also predict each case here")
    arguments = parser.parse_args()
    cases = [row for row in json.loads(arguments.cases.read_text()) if arguments.only in row["model"]]
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(arguments.together) as pool:
        for done in as_completed([pool.submit(measure_apart, row, arguments.predict) for row in cases]):
            row = done.result()
            rows.append(row)
            name = " ".join(str(row.get(key, "")) for key in ("model", "policy", "jit", "workspace_mb"))
            sizes = {key: row[key] >> 20 for key in ("steady_peak", "first_peak", "predicted") if key in row}
            said = row.get("error") or f"{sizes} MiB"
            sys.stdout.write(f"{name}: {said[-300:]} ({row.get('first_seconds')} s)\n")
            sys.stdout.flush()
            arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    about = {"date": datetime.now(timezone.utc).isoformat(timespec="seconds"), **versions()}
    sys.stdout.write(json.dumps(about) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(json.dumps(measure(json.loads(sys.argv[2]), cast("Predicting", sys.argv[3]))) + "\n")
        sys.stdout.flush()
        os._exit(0)  # XLA's threads take their time
    main()
