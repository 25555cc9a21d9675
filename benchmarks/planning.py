"""Plans against what people do by hand: what each costs in time at the same budget.

```console
$ python benchmarks/planning.py --out benchmarks/results/planning.json
```

For each model and budget (a share of its plain peak): the plan at grade "exact", traced; half the batch as often as it
takes; checkpoints after every sqrt(n)-th layer and after every block of eight, simulated; and, over at most 12 merged
pieces, how far the plan's segments are from the optimum of all schedules (scipy's MILP). All of it is predicted.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

from models import built

import memfit
from memfit.estimation.estimate import cpu
from memfit.estimation.graph import NO_LIMIT
from memfit.framework import keras, tensorflow
from memfit.planning.optimum import Work, coarsened, of_segments, optimum
from memfit.planning.search import Search
from memfit.report.console import stdout
from memfit.techniques.remat_placement import by_name

_MODELS: dict[str, dict[str, Any]] = {
    "resnet50": {"model": "ResNet50", "size": 224, "batch": 64},
    "unet": {"model": "unet", "size": 256, "batch": 8},
    "efficientnetb0": {"model": "EfficientNetB0", "size": 224, "batch": 64},
    "densenet121": {"model": "DenseNet121", "size": 224, "batch": 32},
    "transformer": {"model": "transformer", "size": 256, "batch": 16},
}
# The same networks at sizes a CPU trains in seconds.
_SMALL = {
    "resnet50": {"size": 160, "batch": 16},
    "unet": {"size": 128, "batch": 4},
    "efficientnetb0": {"size": 160, "batch": 16},
    "densenet121": {"size": 160, "batch": 8},
    "transformer": {"size": 128, "batch": 16},
}
_SHARES = {0.7: 0.12, 0.5: 0.25, 0.35: 0.4, 0.25: 0.6}
_MOST_PIECES, _SOLVER_SECONDS = 12, 30.0


def main() -> None:
    """Plan, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", default=list(_MODELS), choices=list(_MODELS))
    parser.add_argument("--gpu", default="RTX 3070")
    parser.add_argument("--jit", choices=("on", "off"), default="off")
    parser.add_argument("--small", action="store_true", help="small versions of the models, for this machine's CPU")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    cases = []
    for name in given.models:
        row = {**_MODELS[name], **(_SMALL[name] if given.small else {})}
        cases += _cases(name, row, cpu() if given.small else given.gpu, jit=given.jit == "on")
    if given.out:
        record = {
            "date": datetime.now(tz=timezone.utc).date().isoformat(),
            "gpu": None if given.small else given.gpu,
            "jit": given.jit,
            "versions": {"tensorflow": tensorflow().__version__, "keras": keras().__version__},
            "cases": cases,
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _cases(name: str, row: dict[str, Any], gpu: memfit.GPU | str, *, jit: bool) -> list[dict[str, Any]]:
    cases = []
    with built(row) as model:
        began = time.perf_counter()
        planner = memfit.Planner(model, row["batch"], gpu=gpu, jit=jit)
        plain = planner.plain.limited(NO_LIMIT)
        traced = time.perf_counter() - began
        if plain is None:
            raise SystemExit(f"{name} needs more than 64-bit arithmetic holds.")
        stdout().print(f"{name}, batch {row['batch']}: {plain.value / 2**20:.0f} MiB plain, traced in {traced:.0f} s")
        for share, bar in _SHARES.items():
            budget = int(plain.value * share)
            began = time.perf_counter()
            plan = planner.plan(budget)
            seconds = time.perf_counter() - began
            predicted = plan.prediction
            case = {
                "model": name,
                "row": row,
                "share": share,
                "budget_bytes": budget,
                "bar_slowdown": bar,
                "planning_seconds": seconds,
                "plan": plan.to_dict(),
                "by_hand": _by_hand(planner.search, int(budget * (1 - planner.margin))),
                "optimum": _against_optimum(planner, plan),
            }
            cases.append(case)
            what = {key: len(value) if key == "remat" else value for key, value in plan.techniques.items()}
            if predicted is not None and predicted.feasible:
                answer = f"{_percent(predicted.slowdown)} (bar {_percent(bar)}) {what}"
            else:
                needs = predicted.smallest_budgets["exact"] / plain.value if predicted else 0
                answer = f"infeasible: exact needs {100 * needs:.0f} % of the plain peak"
            stdout().print(f"  {100 * share:.0f} %: {answer}, {seconds:.0f} s")
            stdout().print(f"        by hand: {_in_words(case['by_hand'])}; optimum: {case['optimum']}")
    return cases


def _by_hand(search: Search, target: int) -> dict[str, float | None]:
    """The slowdown of what people do without a planner, on the plain step; `None` if it does not fit."""
    plain = search.plain
    size = search.batch
    while size > 1 and search.peak_at(plain, size) > target:
        size = (size + 1) // 2
    # The same number of samples, in more steps.
    cost = search.step_of(search.bases[0], ())[1]
    slower = math.ceil(search.batch / size) * cost.seconds(size) / plain.seconds - 1
    found = {"half the batch": slower if search.peak_at(plain, size) <= target else None}
    calls = len(search.bases[0].called.calls)
    for what, every in (("sqrt(n) checkpoints", round(math.sqrt(calls))), ("a checkpoint every block", 8)):
        way = search.like(plain, segments=tuple(pairwise(range(0, calls, every))), micro_batch=None)
        found[what] = search.slowdown(way) if search.peak(way) <= target else None
    return found


def _against_optimum(planner: memfit.Planner, plan: memfit.Plan) -> str:
    """The plan's segments against the best schedule of the same peak, in pieces."""
    if plan.prediction is None or not plan.prediction.feasible or plan.remat is None or not planner.graph:
        return "no segments"
    calls = planner.graph.calls
    made_by = {place: at for at, call in enumerate(calls) for place in call.outputs}
    search = planner.search
    base = next(each for each in search.bases if not each.superseded)
    times = [0.0] * len(calls)
    for op, call, seconds in zip(
        base.called.step.ops, base.called.call_of, search.step_of(base, ())[1].each(search.batch), strict=True
    ):
        if call is not None and op.part == "forward":
            times[call] += float(seconds)
    work = [
        Work(
            times[at],
            2 * times[at],
            search.batch * sum(call.sample_bytes),
            tuple(sorted({made_by[place] for place in call.inputs if place in made_by})),
        )
        for at, call in enumerate(calls)
    ]
    merged, edges = coarsened(work, _MOST_PIECES)
    wanted = by_name(planner.graph, list(plan.remat))
    segments = _rounded([(each.start, each.stop) for each in wanted], edges)
    if not segments:
        return "segments within one piece"
    ours = of_segments(merged, segments)
    best = optimum(merged, ours.peak_bytes, seconds_limit=_SOLVER_SECONDS)
    if best is None:
        return "no schedule found"
    how = "proved" if best.optimal else f"not proved, at least {best.bound_seconds / ours.seconds:.3f}"
    return f"{100 * (ours.seconds / best.seconds - 1):.1f} % above the best schedule ({how})"


def _rounded(segments: Sequence[tuple[int, int]], edges: Sequence[int]) -> list[tuple[int, int]]:
    """Segments of calls as segments of pieces."""
    pieces = [
        (
            min(range(len(edges)), key=lambda at: abs(edges[at] - start)),
            min(range(len(edges)), key=lambda at: abs(edges[at] - stop)),
        )
        for start, stop in segments
    ]
    return [(start, stop) for start, stop in pieces if stop > start]


def _in_words(found: dict[str, float | None]) -> str:
    return ", ".join(f"{what} {_percent(slowdown)}" for what, slowdown in found.items())


def _percent(value: float | None) -> str:
    return "does not fit" if value is None else f"{100 * value:+.0f} %"


if __name__ == "__main__":
    main()
