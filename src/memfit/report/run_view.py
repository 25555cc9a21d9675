"""A run record as what its page shows: plain JSON values, bounded in size. Reporters take it from here.

The keys, as `memfit report --json` prints them (bytes end in `_bytes`, unknown is null):

| key | what it holds |
|---|---|
| `memfit_view` | 1, the version of these keys |
| `record`, `broken_lines` | the record's file name; lines of it that could not be read |
| `run` | command, start, versions, device, limit, duration in `seconds`, `outcome`, `exit_code`, `error` |
| `verdict` | `state`, `words`, the highest peak and where it was, the limit, what was free |
| `models` | each model with batch, regime, `plan`, and `predicted` against measured peaks |
| `phases` | of train, validation and predict: steps, step times, peak |
| `series` | the run's timeline as columns of equal length, at most 4000 long |
| `marks` | out-of-memory, recovery and retrace events on that timeline |
| `epochs` | one row per epoch and phase with its logs |
| `timelines` | profiled steps; a point is [µs, bytes in use, index into `operations`, signed bytes] |
| `operations` | [name, type, layer, part] of what the points refer to |
| `predicted_at_peak` | what the estimate says is in memory, for runs without a profiled step |
| `findings` | what was found while it ran, and what the record shows |
| `out_of_memory`, `recoveries`, `retraces`, `fragmentation` | as recorded |
| `left_out` | how many epochs, marks, retraces and profiled steps are in the record and not here |
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from memfit.observe.findings import findings
from memfit.report.run_predicted import predicted_and_measured, predicted_at_peak, recorded_plan
from memfit.report.run_series import profiled_steps, series
from memfit.report.run_verdict import verdict

if TYPE_CHECKING:
    from memfit.observe.record import Record

_MOST_ROWS = 500
_SEVERITIES = ("problem", "warning", "note")


def run_view(record: "Record") -> dict[str, Any]:
    """Everything the page, the terminal and `--json` show of a run."""
    timelines, operations = profiled_steps(record.timelines)
    marks = _marks(record)
    view = {
        "memfit_view": 1,
        "record": record.path.name,
        "broken_lines": record.broken_lines,
        "run": _run(record),
        "verdict": verdict(record),
        "models": _models(record),
        "phases": _phases(record),
        "series": series(record.steps),
        "marks": _ends(marks),
        "epochs": _ends([_plain(line) for line in record.epochs]),
        "timelines": timelines,
        "operations": operations,
        "predicted_at_peak": None if timelines else predicted_at_peak(record),
        "out_of_memory": _ends([_plain(line) for line in record.out_of_memory]),
        "recoveries": _ends([_plain(line) for line in record.recoveries]),
        "findings": sorted(
            (_plain(line) for line in (*record.findings, *findings(record))),
            key=lambda finding: _severity(finding["severity"]),
        ),
        "retraces": _ends([_plain(line) for line in record.retraces]),
        "fragmentation": _ends([_plain(line) for line in record.fragmentation]),
        "left_out": {
            "timelines": len(record.timelines) - len(timelines),
            **{
                name: max(0, len(rows) - _MOST_ROWS)
                for name, rows in (("marks", marks), ("epochs", record.epochs), ("retraces", record.retraces))
            },
        },
    }
    return {name: finite(value) for name, value in view.items()}


def finite(value: Any) -> Any:
    """The same with "nan" and "inf" as words: JSON has no numbers for them, and a loss that is none must show."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value


def _plain(line: Any) -> dict[str, Any]:
    return asdict(line)


def _ends(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All of them, or the first and the last of very many."""
    half = _MOST_ROWS // 2
    return list(rows) if len(rows) <= _MOST_ROWS else [*rows[:half], *rows[-half:]]


def _severity(name: str) -> int:
    return _SEVERITIES.index(name) if name in _SEVERITIES else len(_SEVERITIES)


def _run(record: "Record") -> dict[str, Any]:
    end = record.end
    return {
        **_plain(record.run),
        "seconds": _last_moment(record),
        "outcome": end.outcome if end else None,
        "exit_code": end.exit_code if end else None,
        "error": end.error if end else None,
    }


def _last_moment(record: "Record") -> float | None:
    lasts = (record.steps[-1:], record.epochs[-1:], record.out_of_memory[-1:], record.recoveries[-1:])
    moments = [line.at for last in lasts for line in last]
    return max(moments, default=None) if record.end is None else record.end.at


def _models(record: "Record") -> list[dict[str, Any]]:
    shown = []
    models = sorted(record.models[:_MOST_ROWS], key=lambda model: model.at)
    # A step belongs to the model that was named last before it; those before any, to the first.
    starts = [-math.inf, *(model.at for model in models[1:]), math.inf][-len(models) - 1 :]
    for model, (start, following) in zip(models, pairwise(starts), strict=True):
        steps = [line for line in record.steps if start <= line.at < following]
        shown.append(
            {
                "at": model.at,
                "model": model.model,
                "batch_size": model.batch_size,
                "regime": model.regime,
                "parameters": model.parameters,
                "plan": recorded_plan(model.plan),
                "predicted": predicted_and_measured(model, steps),
            }
        )
    return shown


def _phases(record: "Record") -> list[dict[str, Any]]:
    shown = []
    for phase in dict.fromkeys(line.phase for line in record.steps):
        lines = [line for line in record.steps if line.phase == phase]
        times = [line.seconds for line in lines if line.seconds is not None]
        shown.append(
            {
                "phase": phase,
                "steps": sum(line.count for line in lines),
                # The middle one: the first step compiles, and would be most of a mean.
                "median_step_seconds": median(times) if times else None,
                "slowest_step_seconds": max((line.slowest_seconds or 0 for line in lines), default=0) or None,
                "peak_bytes": max((line.peak_bytes or 0 for line in lines), default=0) or None,
                "host_bytes": max((line.host_bytes or 0 for line in lines), default=0) or None,
            }
        )
    return shown


def _marks(record: "Record") -> list[dict[str, Any]]:
    """What happened on the way, in the order of time."""
    found = [
        {
            "kind": "out_of_memory",
            "at": line.at,
            "phase": line.phase,
            "step": line.step,
            "words": f"out of memory: {line.layer or line.op or 'unknown operation'}",
        }
        for line in record.out_of_memory
    ]
    found += [
        {"kind": "recovery", "at": line.at, "phase": line.phase, "step": line.step, "words": f"recovery: {line.what}"}
        for line in record.recoveries
    ]
    found += [
        {"kind": "retrace", "at": line.at, "phase": line.phase, "step": line.step, "words": f"retrace: {line.reason}"}
        for line in record.retraces
    ]
    return sorted(found, key=lambda mark: mark["at"])
