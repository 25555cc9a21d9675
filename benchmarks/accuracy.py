"""How near the predictions are to what a GPU did, next to what people use today.

Usage:
    python benchmarks/accuracy.py TRUTH.json [--json OUT.json] [--only ResNet] [--regime graph] [--method liveness]

A truth file is a list of cases: `model`, `size`, `batch`, `jit`, and where they differ from the default `optimizer`,
`policy`, `accum`, `limit_mb` and `workspace_mb` (a cap on workspaces). Measured are `steady_peak` and in some files
`first_peak`, in bytes. Cases without `steady_peak` failed on the GPU: left out.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from baselines import MODEL_PROFILER, grappler_peak, layer_sum, model_profiler
from models import NOT_COMPILED, Row, batch_of, built, resident_bytes
from rich.console import Console
from rich.progress import track
from rich.table import Table

import memfit
from memfit.framework import installed_version, tensorflow_distribution
from memfit.hardware.scratch import capped
from memfit.units import MIB, format_size

# What makes a case, in the order of its name; everything else in a row was measured.
_CASE = ("model", "size", "batch", "optimizer", "policy", "accum", "jit", "limit_mb", "workspace_mb", "env")
_PIPE_WIDTH = 220


@dataclass(frozen=True)
class Outcome:
    """One case: what was measured, what was predicted, and what the baselines said."""

    case: dict[str, Any]
    regime: str
    measured_bytes: int
    predicted_bytes: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    measured_first_bytes: int | None = None
    predicted_first_bytes: int | None = None
    first_low_bytes: int | None = None
    first_high_bytes: int | None = None
    method: str | None = None
    seconds: float | None = None
    failure: str | None = None
    layer_sum_bytes: int | None = None
    grappler_bytes: int | None = None
    model_profiler_bytes: int | None = None
    baseline_failures: dict[str, str] = field(default_factory=dict)
    """Why a baseline gives no answer, by its name."""

    @property
    def name(self) -> str:
        """The case in words."""
        parts = [self.case["model"], str(self.case["size"]), f"b{self.case['batch']}"]
        parts += [self.case[key] for key in ("optimizer", "policy") if self.case.get(key) not in (None, "adam")]
        if self.case.get("accum"):
            parts.append(f"accum {self.case['accum']}")
        parts += [f"{key[:-3]} {self.case[key]}" for key in ("limit_mb", "workspace_mb") if self.case.get(key)]
        return " ".join([*parts, *(f"{name}={value}" for name, value in (self.case.get("env") or {}).items())])

    @property
    def inside(self) -> bool:
        """Whether the band holds what was measured; no prediction holds nothing."""
        if self.low_bytes is None or self.high_bytes is None:
            return False
        return self.low_bytes <= self.measured_bytes <= self.high_bytes

    @property
    def first_inside(self) -> bool:
        """Whether the band of the first step holds what was measured."""
        bounds = self.first_low_bytes, self.measured_first_bytes, self.first_high_bytes
        if None in bounds:
            return False
        low, measured, high = (bound or 0 for bound in bounds)
        return low <= measured <= high

    @property
    def first_error(self) -> float | None:
        """The relative error of the first step's prediction."""
        if self.predicted_first_bytes is None or not self.measured_first_bytes:
            return None
        return self.predicted_first_bytes / self.measured_first_bytes - 1

    def error(self, predicted: int | None) -> float | None:
        """The relative error of a prediction."""
        return None if predicted is None else predicted / self.measured_bytes - 1

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        errors = {
            "error": self.error(self.predicted_bytes),
            "layer_sum_error": self.error(self.layer_sum_bytes),
            "grappler_error": self.error(self.grappler_bytes),
            "model_profiler_error": self.error(self.model_profiler_bytes),
        }
        first = {"first_error": self.first_error, "first_inside": self.first_inside}
        return {"name": self.name, **asdict(self), **errors, "inside": self.inside, **first}


# Who is asked beside memfit, and where the answer is kept. Grappler comes last: it builds models that are not built.
_BASELINES = {
    "layer sum": "layer_sum_bytes",
    "model-profiler": "model_profiler_bytes",
    "TF grappler": "grappler_bytes",
}
_ENDED = "the process ended: out of host memory, or a crash"

# Who predicts, and where the prediction is found.
_PREDICTORS = {"memfit": "predicted_bytes", **_BASELINES}


@dataclass(frozen=True)
class Summary:
    """How near one predictor is in one regime."""

    regime: str
    predictor: str
    cases: int
    unanswered: int
    median_error: float | None
    worst_error: float | None
    inside_share: float | None
    """The share of cases inside the band; `None` for predictors that give none."""


def summaries(outcomes: Sequence[Outcome]) -> Iterator[Summary]:
    """Each regime, each predictor."""
    for regime in sorted({outcome.regime for outcome in outcomes}):
        ours = [outcome for outcome in outcomes if outcome.regime == regime]
        for predictor, predicted in _PREDICTORS.items():
            errors = [outcome.error(getattr(outcome, predicted)) for outcome in ours]
            known = [error for error in errors if error is not None]
            # A baseline that was not asked is left out; one that was and could not answer is shown.
            if not known and predictor != "memfit" and not any(predictor in each.baseline_failures for each in ours):
                continue
            yield Summary(
                regime=regime,
                predictor=predictor,
                cases=len(ours),
                unanswered=len(ours) - len(known),
                median_error=statistics.median(map(abs, known)) if known else None,
                worst_error=max(known, key=abs) if known else None,
                inside_share=sum(each.inside for each in ours) / len(ours) if predictor == "memfit" else None,
            )


def first_step_summaries(outcomes: Sequence[Outcome]) -> Iterator[Summary]:
    """Each regime's first step, with a cap on workspaces and without."""
    for regime in sorted({outcome.regime for outcome in outcomes}):
        for has_cap in (False, True):
            ours = [
                outcome
                for outcome in outcomes
                if outcome.regime == regime
                and bool(outcome.case.get("workspace_mb")) == has_cap
                and outcome.measured_first_bytes
            ]
            errors = [outcome.first_error for outcome in ours if outcome.first_error is not None]
            if errors:
                yield Summary(
                    regime=regime,
                    predictor=f"memfit, first step{', capped' if has_cap else ''}",
                    cases=len(ours),
                    unanswered=len(ours) - len(errors),
                    median_error=statistics.median(map(abs, errors)),
                    worst_error=max(errors, key=abs),
                    inside_share=sum(each.first_inside for each in ours) / len(ours),
                )


def expected_regime(row: Row) -> str:
    """What the case ran as on the GPU."""
    return "xla" if row["jit"] and row["model"] not in NOT_COMPILED else "graph"


def predict_all(rows: Iterable[Row], gpu: memfit.GPU, *, baselines: bool) -> Iterator[Outcome]:
    """Predict each case in a process of its own: TensorFlow keeps what it traces, gigabytes after a few models."""
    # The baselines know neither regime nor limit: rows that differ only in those share an answer.
    answered: dict[str, Outcome] = {}
    for row in rows:
        key = json.dumps([row.get(key) for key in ("model", "size", "batch", "optimizer", "policy", "accum")])
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            try:
                outcome = pool.submit(predict, row, gpu).result()
            except BrokenProcessPool:
                outcome = replace(_unpredicted(row), failure=_ENDED)
        if baselines and key not in answered:
            # In a process of their own: what ends theirs leaves the prediction as it is, and its memory is free again.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                try:
                    answered[key] = pool.submit(ask_baselines, row, gpu).result()
                except BrokenProcessPool:
                    answered[key] = replace(outcome, baseline_failures=dict.fromkeys(_BASELINES, _ENDED))
        said = answered.get(key, outcome)
        yield replace(
            outcome,
            layer_sum_bytes=said.layer_sum_bytes,
            grappler_bytes=said.grappler_bytes,
            model_profiler_bytes=said.model_profiler_bytes,
            baseline_failures=said.baseline_failures,
        )


def predict(row: Row, gpu: memfit.GPU) -> Outcome:
    """Predict one case; what goes wrong is part of the outcome."""
    outcome = _unpredicted(row)
    # A truth file is long and a model that cannot be predicted is a result, so one failure does not end the run.
    try:
        with built(row) as model:
            outcome = _predict(outcome, model, gpu)
    except Exception as error:  # noqa: BLE001
        outcome = replace(outcome, failure=_reason(error))
    return outcome


def _unpredicted(row: Row) -> Outcome:
    case = {key: row[key] for key in _CASE if row.get(key) is not None}
    return Outcome(case, expected_regime(row), row["steady_peak"], measured_first_bytes=row.get("first_peak"))


def _predict(outcome: Outcome, model: Any, gpu: memfit.GPU) -> Outcome:
    case = outcome.case
    batch = batch_of(case, model)
    started = time.perf_counter()
    with capped(case["workspace_mb"] * MIB) if case.get("workspace_mb") else nullcontext():
        estimate = memfit.estimate(
            model,
            batch_size=case["batch"],
            gpu=gpu,
            jit=case.get("jit", False),
            data=batch if len(batch) > 1 else batch[0],
            resident=resident_bytes(case, model),
        )
        peak = estimate.limited(case["limit_mb"] * MIB) if case.get("limit_mb") else estimate.steady_peak
        first = estimate.first_step_peak
    outcome = replace(outcome, seconds=time.perf_counter() - started, method=estimate.method)
    if estimate.regime != outcome.regime:
        return replace(outcome, failure=f"predicted for the {estimate.regime} regime, measured in {outcome.regime}")
    if peak is None:
        return replace(outcome, failure="predicted not to fit")
    outcome = replace(outcome, predicted_bytes=peak.value, low_bytes=peak.low, high_bytes=peak.high)
    if case.get("limit_mb"):
        return outcome
    return replace(outcome, predicted_first_bytes=first.value, first_low_bytes=first.low, first_high_bytes=first.high)


def ask_baselines(row: Row, gpu: memfit.GPU) -> Outcome:
    """Ask each baseline; one that cannot answer, as for a model without layer outputs, leaves the others alone."""
    outcome, failures = _unpredicted(row), {}
    with built(row) as model:
        batch = batch_of(row, model)
        data = batch if len(batch) > 1 else batch[0]
        answers: dict[str, Callable[[], int]] = {
            "layer sum": lambda: layer_sum(model, row["batch"]),
            "model-profiler": lambda: model_profiler(model, row["batch"]),
            "TF grappler": lambda: grappler_peak(model, row["batch"], gpu, data),
        }
        for name, field_name in _BASELINES.items():
            try:
                outcome = replace(outcome, **{field_name: answers[name]()})
            except Exception as error:  # noqa: BLE001 - no answer is a result here too
                failures[name] = _reason(error)
    return replace(outcome, baseline_failures=failures)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def cases_table(outcomes: Iterable[Outcome]) -> Table:
    """Every case, with the baselines beside it."""
    table = Table(title="Steady peak, predicted without a GPU and measured on one", title_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("regime")
    for column in ("true", "predicted", "error", "band", "inside", "s"):
        table.add_column(column, justify="right", no_wrap=True)
    for baseline in _BASELINES:
        table.add_column(baseline, justify="right", no_wrap=True)
        table.add_column("error", justify="right", no_wrap=True)
    for each in outcomes:
        band = f"{format_size(each.low_bytes)} .. {format_size(each.high_bytes)}" if each.low_bytes else "-"
        predicted = [_size(each.predicted_bytes), _percent(each.error(each.predicted_bytes)), band, _inside(each)]
        if each.failure and each.predicted_bytes is None:
            predicted = ["-", "-", "-", "[red]failed[/]"]
        table.add_row(
            each.name,
            each.regime,
            format_size(each.measured_bytes),
            *predicted,
            "-" if each.seconds is None else f"{each.seconds:.1f}",
            *(cell for baseline in _BASELINES for cell in _baseline_cells(each, baseline)),
        )
    return table


def summary_table(found: Iterable[Summary]) -> Table:
    """The regimes, in a few numbers each."""
    table = Table(title="Per regime", title_justify="left")
    for column in ("regime", "predictor"):
        table.add_column(column)
    for column in ("cases", "unanswered", "median |error|", "worst", "inside the band"):
        table.add_column(column, justify="right")
    for each in found:
        table.add_row(
            each.regime,
            each.predictor,
            str(each.cases),
            str(each.unanswered),
            _percent(each.median_error, sign=False),
            _percent(each.worst_error),
            "no band" if each.inside_share is None else f"{each.inside_share:.0%}",
        )
    return table


def _baseline_cells(outcome: Outcome, baseline: str) -> tuple[str, str]:
    said = getattr(outcome, _BASELINES[baseline])
    if baseline in outcome.baseline_failures:
        return "unanswered", "-"
    return _size(said), _percent(outcome.error(said))


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else format_size(size_bytes)


def _percent(share: float | None, *, sign: bool = True) -> str:
    return "-" if share is None else f"{share:+.1%}" if sign else f"{share:.1%}"


def _inside(outcome: Outcome) -> str:
    return "[green]yes[/]" if outcome.inside else "[red]no[/]"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a truth file, which may be gzipped."""
    content = path.read_bytes()
    rows: list[dict[str, Any]] = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    return rows


def record(outcomes: Sequence[Outcome], skipped: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The whole run as JSON values."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "truth": arguments.truth.name,
        "gpu": arguments.gpu.name,
        "method": arguments.method,
        "versions": {
            "memfit": memfit.__version__,
            "python": sys.version.split()[0],
            "tensorflow": (tensorflow_distribution() or (None, None))[1],
            "keras": installed_version("keras"),
            "jax": installed_version("jax"),
            "model-profiler": None if arguments.no_baselines else f"formula of {MODEL_PROFILER}",
        },
        "skipped": skipped,
        "summary": [asdict(each) for each in (*summaries(outcomes), *first_step_summaries(outcomes))],
        "cases": [outcome.to_dict() for outcome in outcomes],
    }


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compare predictions with a truth file.")
    parser.add_argument("truth", type=Path, help="measured cases, JSON (or gzipped JSON)")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--regime", choices=("graph", "xla", "all"), default="all")
    parser.add_argument("--gpu", default="H200", help="the card the truth was measured on")
    parser.add_argument(
        "--method", choices=("auto", "liveness"), default="auto", help="liveness: XLA cases without its compiler"
    )
    parser.add_argument("--no-baselines", action="store_true", help="memfit alone, in half the time")
    arguments = parser.parse_args()
    if not arguments.truth.is_file():
        parser.error(f"there is no file {str(arguments.truth)!r}; give a truth file, such as h200.json")
    try:
        arguments.gpu = memfit.find_gpu(arguments.gpu)
    except memfit.MemfitError as error:
        parser.error(str(error))
    return arguments


def main() -> None:
    """Predict every case and print how near it was."""
    arguments = parse_arguments()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if arguments.method == "liveness":
        os.environ["MEMFIT_XLA"] = "off"
    messages = Console(stderr=True, highlight=False)
    gpu = arguments.gpu
    rows = read_rows(arguments.truth)
    measured = [row for row in rows if row.get("steady_peak") and not row.get("error")]
    chosen = [
        row
        for row in measured
        if arguments.regime in ("all", expected_regime(row))
        and arguments.only.lower() in _unpredicted(row).name.lower()
    ]
    if not chosen:
        messages.print(f"No case with a measured peak matches --only {arguments.only!r} --regime {arguments.regime}.")
        sys.exit(2)
    outcomes: list[Outcome] = []
    predicted = predict_all(chosen, gpu, baselines=not arguments.no_baselines)
    quiet = not messages.is_terminal
    for outcome in track(predicted, "Predicting", total=len(chosen), console=messages, disable=quiet, transient=True):
        outcomes.append(outcome)
        if arguments.json:  # after every case, so that an interrupted run keeps what it has
            found = record(outcomes, len(rows) - len(measured), arguments)
            arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(cases_table(outcomes))
    console.print(summary_table((*summaries(outcomes), *first_step_summaries(outcomes))))
    console.print(f"{len(rows) - len(measured)} of {len(rows)} rows have no measured peak and were left out.")
    for outcome in outcomes:
        reasons = [f"{baseline}: {reason}" for baseline, reason in outcome.baseline_failures.items()]
        for failure in filter(None, (outcome.failure, *reasons)):
            console.print(f"{outcome.name} ({outcome.regime}): {failure}", soft_wrap=True, markup=False)
    if arguments.json:
        console.print(f"Wrote {arguments.json}")


if __name__ == "__main__":
    main()
