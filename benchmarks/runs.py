"""Training a few steps in processes of their own, side by side, on the device that is there.

Each process trains until all of its group are warm, and is then timed alone. Peak is what TensorFlow's allocator
counted after warm-up; a step is a batch.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from models import built

import memfit
from memfit.hardware.host import host_memory
from memfit.train.recovered import warn
from memfit.train.session import Recovery, Session
from memfit.units import MIB

_WARM_UP = 3
_OUT_OF_MEMORY = re.compile("out of memory|OOM when|ran out of memory", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """A model, and how it is trained."""

    name: str
    row: Mapping[str, Any]
    """Model, size and batch, as `models.built` takes them."""
    jit: bool
    plan: Mapping[str, Any] | None = None
    """A plan's JSON values; `None` is plain Keras."""
    recovers: bool = False
    """Whether it trains as in `memfit.fit(..., recover=True)`."""
    peer: str | None = None
    """Something else to train in: `module:context manager`."""
    batches: int = 1
    """Batches to a step, for those who accumulate."""
    slim: Mapping[str, Any] | None = None
    """What `memfit.slim` is to make of the model."""
    limit: int | None = None
    """The memory the device may use, in bytes; `None` lets it grow."""


def run_together(group: Sequence[Run], steps: int, *, timeout: float = 400) -> Iterator[dict[str, Any]]:
    """Warm a group up side by side, then time one after the other; what did not come through has a `failure`."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, json.dumps(asdict(run)), str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for run in group
    ]
    # Only until it is warm: one that stands still must not keep the others waiting for ever.
    watches = [threading.Timer(timeout, child.kill) for child in children]
    errors: list[list[str]] = [[] for _ in children]
    readers = [
        threading.Thread(target=lambda kept=kept, child=child: kept.extend(child.stderr), daemon=True)
        for kept, child in zip(errors, children, strict=True)
    ]
    for each in (*watches, *readers):
        each.start()
    ready = []
    for child, watch in zip(children, watches, strict=True):
        ready.append(any(line.strip() == "ready" for line in iter(child.stdout.readline, "")))
        watch.cancel()
    for run, child, is_ready, said in zip(group, children, ready, errors, strict=True):
        if is_ready:
            child.stdin.write("go\n")
            child.stdin.flush()
        found = [line for line in child.stdout if line.startswith("{")]
        status = child.wait()
        yield json.loads(found[-1]) if found else {"failure": _why(status, "".join(said)), "limit_bytes": run.limit}


def _why(status: int, text: str) -> str:
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it left no message"]
    telling = [line for line in lines if _OUT_OF_MEMORY.search(line)] or [line for line in lines if "Error" in line]
    return (telling or lines)[-1][:300]


def _device(run: Run) -> Any | None:
    """The GPU, set up as the run asks; without one the CPU gets a GPU's allocator."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if run.limit is not None or not gpus:
        memfit.devices.configure(limit=run.limit or int(0.8 * host_memory().available))
    else:
        # As people do it, without what memfit would set besides.
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    return gpus[0] if gpus else None


def run_one(run: Run, steps: int) -> dict[str, Any]:
    """Train in this process; waits for a line on standard input before it is timed."""
    import keras
    import numpy as np
    import tensorflow as tf

    gpu = _device(run)
    keras.utils.set_random_seed(0)
    with built(run.row) as whole:
        model = memfit.slim(whole, **run.slim) if run.slim else whole
        model.compile(model.optimizer, model.loss, jit_compile=run.jit)
        with _trained_in(run, model):
            rng = np.random.default_rng(0)
            batch, shape = run.row["batch"], model.inputs[0].shape[1:]
            floating = tf.as_dtype(model.inputs[0].dtype).is_floating
            x = rng.random((batch, *shape), dtype="float32") if floating else rng.integers(0, 8192, (batch, *shape))
            y = rng.integers(0, model.output_shape[-1], (batch, *model.output_shape[1:-1]))
            dataset = tf.data.Dataset.from_tensors((x.astype("float32" if floating else "int32"), y.astype("int32")))
            began = time.perf_counter()
            model.fit(dataset.repeat(run.batches), verbose=0)
            first_seconds = time.perf_counter() - began
            losses = model.fit(dataset.repeat(_WARM_UP * run.batches), verbose=0).history["loss"]
            first = memfit.devices.memory()[0].peak
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()
            memfit.devices.reset_peak()
            began = time.perf_counter()
            model.fit(dataset.repeat(steps * run.batches), verbose=0)
            seconds = (time.perf_counter() - began) / steps
            return {
                "measured_steady_peak_bytes": memfit.devices.memory()[0].peak,
                "measured_first_step_peak_bytes": first,
                "first_step_seconds": first_seconds,
                "step_seconds": seconds,
                "loss": float(losses[0]),
                "gpu": tf.config.experimental.get_device_details(gpu).get("device_name") if gpu else None,
                "limit_bytes": run.limit,
            }


def _trained_in(run: Run, model: Any) -> AbstractContextManager[Any]:
    if run.peer is not None:
        from pkgutil import resolve_name

        entered: AbstractContextManager[Any] = resolve_name(run.peer)(model)
        return entered
    if run.plan is None:
        return nullcontext()
    plan = memfit.Plan.from_dict(dict(run.plan))
    return Session(model, plan, recovery=Recovery(warn) if run.recovers else None)


def in_mebibytes(size: int | None) -> str:
    """For a table."""
    return "unknown" if size is None else f"{size / MIB:.0f}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_one(Run(**json.loads(sys.argv[1])), int(sys.argv[2]))) + "\n")
    sys.stdout.flush()
    # Nothing is left to do, and XLA's threads take their time.
    os._exit(0)
