"""Plans trained under a real limit equal to their budget, on the device that is there.

```console
$ python benchmarks/planning.py --small --out plans.json                        # for the CPU's BFC allocator
$ python benchmarks/planned_runs.py plans.json --out benchmarks/results/planned_runs_cpu.json
```

Every feasible plan of a results file of `planning.py` is trained for a few steps under its budget; next to it the plain
model, once without a limit, for the step time, and once under the largest budget, which must be too little for it.
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


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("plans", type=Path)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--together", type=int, default=1, help="processes that warm up side by side")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=400, help="seconds to get warm in")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    record = json.loads(given.plans.read_text(encoding="utf-8"))
    jit = record["jit"] == "on"
    pairs = [pair for pair in _runs(record["cases"], jit) if not given.models or pair[1]["model"] in given.models]
    outcomes: list[dict[str, Any]] = []
    for start in range(0, len(pairs), given.together):
        group = pairs[start : start + given.together]
        measured = run_together([run for run, _ in group], given.steps, timeout=given.timeout)
        outcomes += [{"name": run.name, **case, **found} for (run, case), found in zip(group, measured, strict=True)]
        if given.out:
            kept = {
                "date": datetime.now(tz=timezone.utc).date().isoformat(),
                "jit": record["jit"],
                "versions": versions(),
            }
            given.out.write_text(json.dumps({**kept, "cases": outcomes}, indent=1) + "\n", encoding="utf-8")
    _show(outcomes)


def _runs(cases: list[dict[str, Any]], jit: bool) -> list[tuple[Run, dict[str, Any]]]:
    """What to train, each with what was predicted of it."""
    found = []
    for model in dict.fromkeys(case["model"] for case in cases):
        mine = [case for case in cases if case["model"] == model]
        row, most = mine[0]["row"], max(case["budget_bytes"] for case in mine)
        found.append((Run(f"{model}/plain", row, jit), {"model": model, "kind": "plain"}))
        found.append((Run(f"{model}/plain under a limit", row, jit, limit=most), {"model": model, "kind": "control"}))
        for case in mine:
            plan = case["plan"]
            if not plan["feasible"]:
                continue
            predicted = {
                "share": case["share"],
                "predicted_peak_bytes": plan["predicted_peak_bytes"],
                "predicted_slowdown": plan["predicted_slowdown"],
                "techniques": plan["techniques"],
            }
            run = Run(f"{model}/{case['share']:.0%}", row, jit, plan=plan, limit=case["budget_bytes"])
            found.append((run, {"model": model, "kind": "plan", **predicted}))
    return found


def _show(outcomes: list[dict[str, Any]]) -> None:
    table = Table("run", "limit MiB", "predicted MiB", "measured MiB", "predicted time", "measured time", "")
    plain = {each["model"]: each for each in outcomes if each["kind"] == "plain" and "failure" not in each}
    for each in outcomes:
        base = plain.get(each["model"])
        ratio = f"{each['step_seconds'] / base['step_seconds'] - 1:+.0%}" if base and "step_seconds" in each else ""
        table.add_row(
            each["name"],
            in_mebibytes(each["limit_bytes"]) if each.get("limit_bytes") else "",
            in_mebibytes(each["predicted_peak_bytes"]) if "predicted_peak_bytes" in each else "",
            in_mebibytes(each["measured_steady_peak_bytes"]) if "measured_steady_peak_bytes" in each else "",
            f"{each['predicted_slowdown']:+.0%}" if "predicted_slowdown" in each else "",
            ratio,
            each.get("failure", "trained"),
        )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
