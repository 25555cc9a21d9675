"""Run records made by hand: a U-Net that runs out of memory once and goes on, in any number of steps."""

import json
import math
from pathlib import Path
from typing import Any

from memfit.units import GIB, MIB

Line = dict[str, Any]

LIMIT = 8 * GIB
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "\"onmouseover='alert(3)'",
    "<img src=x onerror=alert(4)>",
    "right\u202eto left\u2066",
    "line\u2028separator & [bold]markup[/bold]",
    "\x1b[2Jcleared",
)
_STATIC = int(0.46 * GIB)
_DOUBLING = 512
"""Lines of a phase before one line stands for twice as many steps."""


def write_record(path: Path, lines: list[Line]) -> Path:
    """One JSON object per line, as the recorder writes them."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def unet_record(
    *,
    steps: int = 600,
    epochs: int = 4,
    out_of_memory: bool = True,
    timelines: int = 2,
    hostile: bool = False,
    step_seconds: float = 0.31,
) -> list[Line]:
    """A whole run: `steps` training steps in `epochs`, each with validation, findings, a plan and its price."""
    layers = _layers(hostile=hostile)
    lines = [run_line(), model_line(layers)]
    clock = _Clock(lines, step_seconds)
    per_epoch = max(1, steps // epochs)
    for epoch in range(1, epochs + 1):
        if epoch == 2 and out_of_memory:
            lines += _out_of_memory(clock, layers[-2])
        clock.steps("train", epoch, per_epoch)
        lines.append(_epoch(clock, epoch, "train", per_epoch))
        clock.steps("validation", epoch, max(1, per_epoch // 10))
        lines.append(_epoch(clock, epoch, "validation", max(1, per_epoch // 10)))
    lines += [timeline_line(layers, step=5 + 40 * at, at=2.0 + at) for at in range(timelines)]
    lines += [{"kind": "fragmentation", "at": clock.now, "free_bytes": 620 * MIB, "largest_free_bytes": 210 * MIB}]
    lines += [*_retraces(layers), *_findings(layers)]
    lines.append({"kind": "end", "at": clock.now + 1, "outcome": "finished", "exit_code": 0, "error": None})
    return lines


def run_line(**changes: Any) -> Line:
    """The first line."""
    return {
        "kind": "run", "memfit_record": 1, "started": "2026-11-14T09:30:12+00:00",
        "command": ["train.py", "--epochs", "4", "--data", "images"],
        "memfit": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.0", "python": "3.12.4",
        "device": "GPU:0", "device_name": "NVIDIA GeForce RTX 3070", "limit_bytes": LIMIT, "growth": False,
        "host_memory_bytes": 64 * GIB, **changes,
    }  # fmt: skip


def model_line(layers: list[str], **changes: Any) -> Line:
    """A U-Net with an estimate and a plan."""
    estimate = {
        "model": "unet", "batch_size": 16, "regime": "graph", "method": "executor replay",
        "steady_peak_bytes": int(9.4 * GIB), "low_bytes": int(9.1 * GIB), "high_bytes": int(9.9 * GIB),
        "first_step_peak_bytes": int(9.8 * GIB), "first_step_low_bytes": int(9.4 * GIB),
        "first_step_high_bytes": int(10.9 * GIB),
        "breakdown": {
            "parameters_bytes": 118 * MIB, "gradients_bytes": 410 * MIB, "optimizer_state_bytes": 237 * MIB,
            "activations_bytes": int(8.1 * GIB), "workspace_bytes": 512 * MIB, "input_batch_bytes": 48 * MIB,
            "other_bytes": 4 * MIB,
        },
        "phases": {
            "train": {"steady_peak_bytes": int(9.4 * GIB), "low_bytes": int(9.1 * GIB), "high_bytes": int(9.9 * GIB)},
            "evaluate": {
                "steady_peak_bytes": int(2.9 * GIB), "low_bytes": int(2.7 * GIB), "high_bytes": int(3.1 * GIB)
            },
            "predict": None,
        },
        "largest": [
            {"bytes": 512 * MIB, "kind": "activations", "op": f"unet/{layers[1]}/Conv2D", "op_type": "Conv2D",
             "shape": [16, 256, 256, 64], "dtype": "float32", "layer": layers[1], "source": "train.py:41"},
        ],
    }  # fmt: skip
    return {
        "kind": "model", "at": 1.2, "model": "unet", "batch_size": 16, "regime": "graph", "parameters": 31_031_745,
        "estimate": estimate, "plan": _plan(layers), **changes,
    }  # fmt: skip


def timeline_line(layers: list[str], *, step: int, at: float) -> Line:
    """A profiled step: activations rise through the layers, fall in the backward pass, a small update at the end."""
    names: list[Line] = []
    points: list[list[int]] = []
    now, in_use = 0, _STATIC
    sizes = {layer: int((640 - 36 * number) * MIB) for number, layer in enumerate(layers)}
    held: list[Line] = []
    peak = in_use

    def change(layer: str | None, op: str, op_type: str, part: str, size: int) -> None:
        nonlocal now, in_use, peak
        names.append({"op": op, "op_type": op_type, "layer": layer, "part": part})
        now += 1_200 + abs(size) // 60_000
        in_use += size
        peak = max(peak, in_use)
        points.append([now, in_use, len(names) - 1, size])

    for layer in layers:
        for op, share in (("Conv2D", 0.6), ("BatchNorm", 0.25), ("Relu", 0.15)):
            change(layer, f"unet/{layer}/{op}", op, "forward", int(sizes[layer] * share))
            held.append(_tensor(layer, op, "activations", "forward", int(sizes[layer] * share)))
        change(layer, f"unet/{layer}/Conv2D", "Conv2D", "forward", 96 * MIB)
        change(layer, f"unet/{layer}/Conv2D", "Conv2D", "forward", -96 * MIB)
    held.append(_tensor(layers[-1], "Conv2DBackpropInput", "workspace", "backward", 256 * MIB))
    change(layers[-1], "gradient_tape/loss", "LossGrad", "backward", 256 * MIB)
    for layer in reversed(layers):
        change(layer, f"gradient_tape/{layer}/Conv2DBackpropInput", "Conv2DBackpropInput", "backward", 180 * MIB)
        change(layer, f"gradient_tape/{layer}/Conv2DBackpropInput", "Conv2DBackpropInput", "backward", -172 * MIB)
        change(layer, f"gradient_tape/{layer}/AddN", "AddN", "backward", -sizes[layer])
    change(None, "adam/update", "ResourceApplyAdam", "update", 40 * MIB)
    change(None, "adam/update", "ResourceApplyAdam", "update", _STATIC - in_use)
    held.append(_tensor(layers[-1], "Conv2DBackpropInput", "gradients", "backward", 180 * MIB))
    held += [_tensor(layer, "ReadVariableOp", "variables", "other", 12 * MIB) for layer in layers]
    held.sort(key=lambda tensor: -tensor["bytes"])
    return {
        "kind": "timeline", "at": at, "phase": "train", "step": step, "seconds": now / 1e6, "base_bytes": _STATIC,
        "peak_bytes": peak, "names": names, "points": points, "at_peak": held,
    }  # fmt: skip


def _tensor(layer: str, op: str, kind: str, part: str, size: int) -> Line:
    return {
        "op": f"unet/{layer}/{op}", "op_type": op, "layer": layer, "part": part, "kind": kind, "bytes": size,
        "shape": [16, 128, 128, max(1, size // (16 * 128 * 128 * 4))], "dtype": "float32",
    }  # fmt: skip


def _layers(*, hostile: bool) -> list[str]:
    names = [f"down{at}_conv" for at in range(1, 5)] + ["bottleneck"] + [f"up{at}_conv" for at in range(4, 0, -1)]
    return [*names, *HOSTILE] if hostile else [*names, "segmentation_head"]


class _Clock:
    """Writes steps one after the other, with the recorder's doubling."""

    def __init__(self, lines: list[Line], step_seconds: float) -> None:
        self.lines, self.step_seconds, self.now = lines, step_seconds, 3.0
        self.done = {"train": 0, "validation": 0}
        self.written = {"train": 0, "validation": 0}

    def steps(self, phase: str, epoch: int, count: int) -> None:
        training = phase == "train"
        while count:
            together = min(count, 2 ** (self.written[phase] // _DOUBLING))
            number = self.done[phase] + 1
            wave = math.sin(number / 7) * 0.02 + math.sin(number / 190) * 0.015
            peak = int((7.1 if training else 2.8) * GIB * (1 + wave))
            if number == 1:
                peak = int(7.85 * GIB) if training else peak
            seconds = (self.step_seconds if training else self.step_seconds / 3) * (1 + wave * 2)
            in_use = _STATIC + number % 5 * MIB
            self.now += seconds * together
            self.lines.append(
                {
                    "kind": "steps", "at": round(self.now, 3), "phase": phase, "epoch": epoch, "first": number,
                    "count": together, "seconds": round(seconds, 5), "slowest_seconds": round(seconds * 1.4, 5),
                    "in_use_bytes": in_use, "least_in_use_bytes": _STATIC, "peak_bytes": peak,
                    "host_bytes": 3 * GIB + number % 1000 * MIB,
                }
            )  # fmt: skip
            self.done[phase] += together
            self.written[phase] += 1
            count -= together


def _epoch(clock: _Clock, epoch: int, phase: str, steps: int) -> Line:
    logs = {"loss": round(0.9 / epoch, 4), "accuracy": round(1 - 0.4 / epoch, 4)}
    if phase == "validation":
        logs = {f"val_{name}": value for name, value in logs.items()}
    return {
        "kind": "epoch", "at": round(clock.now, 3), "epoch": epoch, "phase": phase, "steps": steps,
        "seconds": round(steps * clock.step_seconds, 2), "peak_bytes": int(7.2 * GIB), "logs": logs,
    }  # fmt: skip


def _out_of_memory(clock: _Clock, layer: str) -> list[Line]:
    step = clock.done["train"] + 1
    happened = {
        "kind": "out_of_memory", "at": round(clock.now + 0.4, 3), "phase": "train", "epoch": 2, "step": step,
        "message": "OOM when allocating tensor with shape[16,256,256,128] and type float on GPU:0",
        "op": f"gradient_tape/unet/{layer}/Conv2DBackpropInput", "layer": layer, "source": "train.py:57",
        "asked_bytes": 512 * MIB, "in_use_bytes": int(7.74 * GIB),
    }  # fmt: skip
    clock.now += 6.4
    recovered = {
        "kind": "recovery", "at": round(clock.now, 3), "phase": "train", "epoch": 2, "step": step,
        "what": "the same batch again in 2 slices of 8", "techniques": {"micro_batch": 8, "remat": 4},
        "seconds": 6.0, "restart": False,
    }  # fmt: skip
    return [happened, recovered]


def _plan(layers: list[str]) -> Line:
    return {
        "memfit_plan": 1, "model": "f3a9", "techniques": {"remat": [f"{layers[0]}..{layers[3]}", layers[5]]},
        "feasible": True, "model_name": "unet", "batch_size": 16, "budget_bytes": LIMIT, "numerics": "exact",
        "grade": "exact", "gpu": "GeForce RTX 3070", "regime": "graph", "margin": 0.05,
        "plain_peak_bytes": int(9.4 * GIB), "plain_peak_low_bytes": int(9.1 * GIB),
        "plain_peak_high_bytes": int(9.9 * GIB), "predicted_peak_bytes": int(7.2 * GIB),
        "predicted_peak_low_bytes": int(6.9 * GIB), "predicted_peak_high_bytes": int(7.5 * GIB),
        "predicted_slowdown": 0.11, "verified": "traced", "measured_peak_bytes": None,
        "parts": [
            {"technique": "remat", "why": "recomputed in the backward pass", "grade": "exact",
             "predicted_peak_bytes": int(7.2 * GIB), "predicted_slowdown": 0.11},
        ],
        "rejected": [
            {"what": "micro_batch 8", "why": "slower", "predicted_peak_bytes": int(6.1 * GIB),
             "predicted_slowdown": 0.19},
            {"what": "jit on", "why": "XLA could not be asked", "predicted_peak_bytes": None,
             "predicted_slowdown": None},
        ],
        "smallest_budget_bytes": {"exact": 3 * GIB, "close": None, "any": None}, "largest_batch": None,
    }  # fmt: skip


def _retraces(layers: list[str]) -> list[Line]:
    reason = f"argument x of {layers[-1]} changed from float32[16,256,256,3] to float32[7,256,256,3]"
    return [
        {"kind": "retrace", "at": 40.0 + at, "phase": "train", "step": 38 + at, "function": "train_step",
         "reason": reason, "count": at + 2}
        for at in range(2)
    ]  # fmt: skip


def _findings(layers: list[str]) -> list[Line]:
    return [
        {
            "kind": "finding", "at": 50.0, "id": "retraced-step", "severity": "warning",
            "title": "The training step was traced 3 times",
            "evidence": "Steps 38 and 39 were traced again: the last batch has 7 samples, the others 16.",
            "cause": f"The data set's last batch is smaller; {layers[-1]} is traced for each size.",
            "fix": "dataset = dataset.batch(16, drop_remainder=True)",
        },
        {
            "kind": "finding", "at": 51.0, "id": "fragmentation", "severity": "note",
            "title": "620 MiB are free, but the largest piece is 210 MiB",
            "evidence": "At the end of epoch 4 a tensor of 512 MiB would not have fit into 620 MiB of free memory.",
            "cause": "Batches of different sizes leave holes that no tensor fits into.",
            "fix": "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py",
        },
    ]  # fmt: skip
