"""What each technique saves and costs on the GPU that is there, next to plain Keras and to what others offer.

Usage:
    python benchmarks/techniques.py [--json OUT.json] [--only resnet50/xla] [--together 8] [--steps 10]
    python benchmarks/techniques.py --predict RESULTS.json [--only resnet50/xla] [--json OUT.json]

Every case runs in a process of its own with memory growth (see `runs`). The second form needs no GPU: it predicts the
cases of a results file for the GPU they ran on.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from models import built, resident_bytes
from rich.console import Console
from rich.table import Table
from runs import Run, in_mebibytes, run_together
from versions import versions

import memfit
from memfit.units import MIB

_MODELS = {
    "resnet50": {"model": "ResNet50", "size": 224, "batch": 64},
    "unet": {"model": "unet", "size": 256, "batch": 8},
    "vgg16": {"model": "VGG16", "size": 224, "batch": 32},
    "transformer": {"model": "transformer", "size": 256, "batch": 16},
}
_REGIMES = {"xla": True, "graph": False}
_SLICES = 8  # a micro-batch is an eighth of the batch
# Name of a variant to the plan it applies; what begins with "peer" is somebody else's, "plain" nobody's.
_PLANS: dict[str, dict[str, Any]] = {
    "empty plan": {},
    "recover": {},
    "workspace 1 GiB": {"workspace": "1GiB"},
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
_SLIMMED: dict[str, dict[str, Any]] = {"slim: separable": {"separable": True}, "slim: half as wide": {"width": 0.5}}
_WITH_NORMALISATION, _WITH_CONVOLUTIONS = ("resnet50", "unet"), ("resnet50", "unet", "vgg16")


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
            for variant in ("plain", *_PLANS, *_PEERS, *_SLIMMED):
                if variant.startswith("fused") and (regime == "xla" or model not in _WITH_NORMALISATION):
                    continue
                if variant in _SLIMMED and model not in _WITH_CONVOLUTIONS:
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


def run_of(case: Case) -> Run:
    """How a case is trained."""
    row = {**_MODELS[case.model], "optimizer": "adam"}
    plan = plan_of(case)
    if case.variant == "peer: accumulation":
        row = {**row, "accum": _SLICES, "batch": row["batch"] // _SLICES}
        return Run(case.name, row, _REGIMES[case.regime], batches=_SLICES)
    peer = "peers:recompute_grad" if case.variant == "peer: recompute_grad" else None
    return Run(
        case.name,
        row,
        _REGIMES[case.regime],
        plan=None if plan is None else plan.to_dict(),
        recovers=case.variant == "recover",
        peer=peer,
        slim=_SLIMMED.get(case.variant),
    )


def predict(outcomes: list[dict[str, Any]], gpu: str) -> Iterator[dict[str, Any]]:
    """Each measured case with what the estimate of its planned step says."""
    for each in outcomes:
        case = Case(each["model"], each["regime"], each["variant"])
        if "failure" in each or case.variant in _PEERS:
            continue
        run = run_of(case)
        row = run.row
        with built(row) as whole:
            model = memfit.slim(whole, **run.slim) if run.slim else whole
            batch, kept = row["batch"], resident_bytes(row, model)
            with memfit.applied(model, plan_of(case) or memfit.Plan()):
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
    table = Table("case", "peak MiB", "of plain", "first step MiB", "s", "step ms", "of plain", "loss")
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
            in_mebibytes(peak),
            f"{peak / base['measured_steady_peak_bytes']:.0%}" if known and base else "",
            in_mebibytes(each["measured_first_step_peak_bytes"]),
            f"{each['first_step_seconds']:.0f}" if "first_step_seconds" in each else "",
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
    parser.add_argument("--predict", type=Path)
    options = parser.parse_args()
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
        group = wanted[start : start + options.together]
        measured = run_together([run_of(case) for case in group], options.steps)
        outcomes += [{**vars(case), "name": case.name, **found} for case, found in zip(group, measured, strict=True)]
        show(outcomes[start:])
        if options.json:
            record = {"date": datetime.now(timezone.utc).date().isoformat(), "versions": versions(), "cases": outcomes}
            options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    show(outcomes)


if __name__ == "__main__":
    main()
