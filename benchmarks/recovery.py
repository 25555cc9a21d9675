"""What it costs to be able to survive: step time and peak of `memfit.fit(..., recover=True)` next to plain Keras.

```console
$ python benchmarks/recovery.py --together 4 --out benchmarks/results/recovery_h200.json
```

Each model is trained plain, and so that it could recover, where there is memory enough; then under a limit in which it
does not fit and every batch is done in a smaller way.
"""

import argparse
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from runs import Run, in_mebibytes, run_together
from versions import versions

from memfit.units import MIB

_PLAN = {"memfit_plan": 1, "model": None, "techniques": {}}
# What keeps the first step from taking the card while kernels are tried out, under a limit.
_UNDER_A_LIMIT = {"memfit_plan": 1, "model": None, "techniques": {"workspace": "1GiB"}}
_MODELS = {
    "ResNet50": ({"model": "ResNet50", "size": 224, "batch": 64}, 3600 * MIB),
    "transformer": ({"model": "transformer", "size": 256, "batch": 16}, None),
}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--together", type=int, default=1, help="processes that warm up side by side")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = [run for jit in (True, False) for name in _MODELS for run in _runs(name, jit)]
    outcomes: list[dict[str, Any]] = []
    for start in range(0, len(runs), given.together):
        group = runs[start : start + given.together]
        measured = run_together(group, given.steps)
        outcomes += [{"name": run.name, **found} for run, found in zip(group, measured, strict=True)]
        if given.out:
            date = datetime.now(tz=timezone.utc).date().isoformat()
            kept = {"date": date, "versions": versions(), "cases": outcomes}
            given.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    _show(outcomes)


def _runs(name: str, jit: bool) -> list[Run]:
    row, limit = _MODELS[name]
    label = f"{name}, {'xla' if jit else 'graph'}"
    runs = [Run(f"{label}: plain", row, jit), Run(f"{label}: recovers", row, jit, plan=_PLAN, recovers=True)]
    if limit is not None:
        label = f"{label}: recovers in {limit // MIB} MiB"
        runs.append(Run(label, row, jit, plan=_UNDER_A_LIMIT, recovers=True, limit=limit))
    return runs


def _show(outcomes: list[dict[str, Any]]) -> None:
    table = Table("", "peak", "step", "against plain")
    plain: dict[str, Any] = {}
    for each in outcomes:
        if each["name"].endswith(": plain"):
            plain = each
        if "failure" in each:
            table.add_row(each["name"], each["failure"], "", "")
            continue
        ratio = each["step_seconds"] / plain["step_seconds"] if plain.get("step_seconds") else None
        shown = "unknown" if ratio is None else f"{ratio:.2f}"
        table.add_row(
            each["name"],
            in_mebibytes(each["measured_steady_peak_bytes"]),
            f"{1000 * each['step_seconds']:.1f} ms",
            shown,
        )
    Console().print(table)


if __name__ == "__main__":
    main()
