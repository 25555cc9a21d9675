"""How long a user waits for an answer: every command in a fresh process with an empty cache, next to its bar.

Usage:
    python benchmarks/speed.py [--json OUT.json] [--only plan] [--rounds 3]

A case is what a user types or calls: `memfit estimate` with everything from the start of Python to the printed answer,
or a call inside a program, where what came before it is not counted. The answers are those for ResNet50 of 224 pixels,
batch 64, on an RTX 3070. Shown is the fastest of some rounds, which other work on the machine disturbs least, and the
user CPU time of the process and its children in that round, which it disturbs less still; the JSON has every round
with the load at its start. XLA cases need the `xla` extra.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from versions import versions

from memfit.estimation.xla.deviceless import missing_packages
from memfit.framework import installed_version
from memfit.hardware.host import usable_cores

_GPU, _BATCH, _OTHER_BATCHES = "RTX 3070", 64, (32, 48, 96, 128)
_COMMAND = ["-m", "memfit", "estimate", "keras.applications:ResNet50", "--batch", str(_BATCH), "--gpu", _GPU, "--json"]
# The first plan finds the candidates, the others choose among them: shares of the plain peak.
_SHARES = (0.7, 0.5, 0.35)
_BACKBONES: dict[str, Any] = {"input_shape": (224, 224, 3), "budget": "8GiB", "batch_size": 32}
_PREFIX = "timed: "


@dataclass(frozen=True)
class Case:
    """What is timed, and how long it may take."""

    name: str
    bar_seconds: float
    task: str
    """A command line of memfit if it starts with `estimate`, else a function of this file for a child to call."""
    jit: bool


_CASES = (
    Case("memfit estimate, graph mode", 12, "estimate", jit=False),
    Case("memfit estimate, XLA", 20, "estimate", jit=True),
    Case("estimate.at(another batch), graph mode", 0.3, "at", jit=False),
    Case("estimate.at(another batch), XLA", 0.3, "at", jit=True),
    Case("memfit.plan after the trace, graph mode", 20, "plan", jit=False),
    Case("another budget, graph mode", 3, "another budget", jit=False),
    Case("memfit.plan after the trace, XLA", 20, "plan", jit=True),
    Case("another budget, XLA", 3, "another budget", jit=True),
    Case("suggest_backbones, graph mode", 60, "backbones", jit=False),
    Case("suggest_backbones, XLA", 60, "backbones", jit=True),
)


@dataclass(frozen=True)
class Run:
    """One case in one round; of calls made several times the slowest."""

    case: str
    bar_seconds: float
    seconds: float
    user_seconds: float
    """CPU time in user mode of the process and its children."""
    load: float
    """Processes that wanted to run in the minute before."""


def run(task: str, *, jit: bool) -> Iterator[Run]:
    """Run a task in a new process with an empty cache; a task may time several cases."""
    cases = [case for case in _CASES if case.jit == jit and _task_of(case) == task]
    load = os.getloadavg()[0]
    arguments = [*_COMMAND, "--jit", "on" if jit else "off"] if task == "estimate" else [__file__, "--child", task]
    with tempfile.TemporaryDirectory(prefix="memfit-speed-") as cache:
        environment = {**os.environ, "MEMFIT_CACHE": cache, "SPEED_JIT": "on" if jit else "off"}
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if child.stdout is None:
            raise RuntimeError("the child has no output")
        printed = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
    # Exit code 1 says that the model does not fit the card, which is an answer.
    if child.returncode not in (0, 1):
        raise SystemExit(f"{task} failed with exit code {child.returncode}: {' '.join(arguments)}")
    timed = [json.loads(line.removeprefix(_PREFIX)) for line in printed.splitlines() if line.startswith(_PREFIX)]
    for case in cases:
        inside = [each for each in timed if each["task"] == case.task]
        if inside:
            slowest = max(inside, key=lambda each: float(each["seconds"]))
            yield Run(case.name, case.bar_seconds, slowest["seconds"], slowest["user_seconds"], load)
        else:
            yield Run(case.name, case.bar_seconds, seconds, used.ru_utime, load)


def _task_of(case: Case) -> str:
    """The task whose process times a case."""
    return "plan" if case.task == "another budget" else case.task


@contextmanager
def _timed(task: str) -> Iterator[None]:
    """Print how long something took, for the parent to read."""
    began, used = time.perf_counter(), _user_seconds()
    yield
    found = {"task": task, "seconds": time.perf_counter() - began, "user_seconds": _user_seconds() - used}
    print(f"{_PREFIX}{json.dumps(found)}", flush=True)  # noqa: T201 (to the parent)


def _user_seconds() -> float:
    times = os.times()
    return times.user + times.children_user


def _at(jit: bool) -> None:
    import memfit

    estimate = memfit.estimate(_resnet50(), _BATCH, gpu=_GPU, jit=jit)
    for batch in _OTHER_BATCHES:
        with _timed("at"):
            _ = estimate.at(batch).steady_peak


def _plan(jit: bool) -> None:
    import memfit

    planner = memfit.Planner(_resnet50(), _BATCH, gpu=_GPU, jit=jit)
    plain = planner.plain.steady_peak.value
    for share in _SHARES:
        with _timed("plan" if share == _SHARES[0] else "another budget"):
            planner.plan(int(share * plain))


def _backbones(jit: bool) -> None:
    import memfit

    memfit.suggest_backbones(gpu=_GPU, jit=jit, **_BACKBONES)


def _resnet50() -> Any:
    from memfit.framework import keras

    model = keras().applications.ResNet50(weights=None, classifier_activation=None)
    model.compile("adam", keras().losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


_TASKS: dict[str, Callable[[bool], None]] = {"at": _at, "plan": _plan, "backbones": _backbones}


def fastest(runs: list[Run]) -> list[Run]:
    """The fastest run of each case."""
    names = dict.fromkeys(run.case for run in runs)
    return [min((run for run in runs if run.case == name), key=lambda run: run.seconds) for name in names]


def table(runs: list[Run]) -> Table:
    """The fastest run of each case next to its bar."""
    made = Table(title=f"Waiting for an answer, {usable_cores()} cores", title_justify="left")
    made.add_column("case", no_wrap=True)
    for column in ("bar", "fastest", "user CPU", "rounds", "load", "within"):
        made.add_column(column, justify="right", no_wrap=True)
    for each in fastest(runs):
        within = each.seconds <= each.bar_seconds
        made.add_row(
            each.case,
            f"{each.bar_seconds:g} s",
            f"{each.seconds:.2f} s",
            f"{each.user_seconds:.2f} s",
            str(sum(run.case == each.case for run in runs)),
            f"{each.load:.1f}",
            "[green]yes[/]" if within else "[red]no[/]",
        )
    return made


def record(runs: list[Run]) -> dict[str, Any]:
    """All runs as JSON values."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cores": usable_cores(),
        "gpu": _GPU,
        "versions": {**versions(), "python": sys.version.split()[0], "jax": installed_version("jax")},
        "fastest": [{**asdict(each), "within": each.seconds <= each.bar_seconds} for each in fastest(runs)],
        "runs": [asdict(each) for each in runs],
    }


def main() -> None:
    """Time every case and print the table."""
    parser = argparse.ArgumentParser(description="Time what a user waits for.")
    parser.add_argument("--json", type=Path, help="also write every round to this file")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=sorted(_TASKS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _TASKS[given.child](os.environ["SPEED_JIT"] == "on")
        return
    messages, console = Console(stderr=True, highlight=False), Console(highlight=False)
    chosen = [case for case in _CASES if given.only.lower() in case.name.lower()]
    if missing := missing_packages():
        messages.print(f"Without XLA: {', '.join(missing)} is not installed (pip install 'memfit\\[xla]').")
        chosen = [case for case in chosen if not case.jit]
    if not chosen:
        parser.error(f"no case matches --only {given.only!r}; there are: {', '.join(case.name for case in _CASES)}")
    runs: list[Run] = []
    for number in range(given.rounds):
        for task, jit in dict.fromkeys((_task_of(case), case.jit) for case in chosen):
            for each in run(task, jit=jit):
                runs.append(each)
                messages.print(f"round {number + 1}: {each.case} {each.seconds:.2f} s, load {each.load:.1f}")
            if given.json:  # after every process, so that an interrupted run keeps what it has
                given.json.write_text(json.dumps(record(runs), indent=1) + "\n", encoding="utf-8")
    console.print(table(runs))
    if given.json:
        console.print(f"Wrote {given.json}")


if __name__ == "__main__":
    main()
