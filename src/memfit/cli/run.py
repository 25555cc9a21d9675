"""`memfit run`: run an unmodified script with memory limits, plans, a record and recovery."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from memfit.errors import InputError
from memfit.observe.record import read_record
from memfit.observe.writer import UnwritableError, record_path, refuse_unwritable
from memfit.report.console import stderr
from memfit.report.run_verdict import verdict
from memfit.script.program import STDIN
from memfit.script.settings import AUTO, NONE, Settings
from memfit.script.supervisor import Ended, end_as, supervise
from memfit.script.words import say
from memfit.techniques.technique import Grade
from memfit.units import parse_size

# What follows the script is the script's.
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}


def run(
    command: Annotated[list[str], typer.Argument(help="The script and its arguments.", metavar="SCRIPT [ARGUMENT]...")],
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module's name, as with python -m.")] = False,
    budget: Annotated[
        str | None, typer.Option(help="Limit the device to this much, such as 8GiB, and plan for it.")
    ] = None,
    limit: Annotated[str | None, typer.Option(help="Limit the device to this much.")] = None,
    growth: Annotated[bool, typer.Option("--growth", help="Take device memory when it is needed.")] = False,
    plan: Annotated[
        str | None,
        typer.Option(help="auto: the fastest that fits, the default with --budget; a saved plan; or none."),
    ] = None,
    numerics: Annotated[
        Grade,
        typer.Option(help="exact: same result to rounding; close: rounded differently; any: another training."),
    ] = "exact",
    recover: Annotated[
        bool, typer.Option("--recover/--no-recover", help="Retry with less memory when memory runs out.")
    ] = True,
    restarts: Annotated[int, typer.Option(min=0, help="How often to restart a script that died of memory.")] = 3,
    snapshot_every: Annotated[
        float | None,
        typer.Option(help="Seconds between snapshots; by default as many as cost 2 % of the time.", min=0.0),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="The record to write, or a folder for it.", metavar="RECORD")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a record that is there.")] = False,
) -> None:
    """Run a script as python would, and recover when memory runs out.

    Every fit of a Keras model is watched. When memory runs out, the batch is retried with a plan that needs less; if
    the process dies, it is restarted from the last snapshot. Exit code and signals are the script's.
    """
    script, *arguments = command
    _refuse(script, module=module, chosen={"--budget": budget, "--limit": limit, "--growth": growth or None})
    path = _checked_record(record, force=force)
    settings = Settings(
        target=script,
        arguments=tuple(arguments),
        record="" if path is None else str(path.absolute()),
        is_module=module,
        budget=None if budget is None else parse_size(budget, what="--budget"),
        limit=None if limit is None else parse_size(limit, what="--limit"),
        growth=growth,
        plan=_checked_plan(plan, budget),
        numerics=numerics,
        recover=recover,
        snapshot_seconds=snapshot_every,
        force=force,
        most_restarts=restarts if recover else 0,
    )
    verdicts: dict[Path, str] = {}
    old = _identity(path)
    ended = supervise(settings, say, look=lambda found: verdicts.update(_verdict(found, old)))
    _say_what_was_written(path, verdicts, ended)
    end_as(ended.code)


def _refuse(script: str, *, module: bool, chosen: dict[str, str | bool | None]) -> None:
    given = [name for name, value in chosen.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are mutually exclusive. Leave all but one of them out.")
    if module:
        return
    path = Path(script)
    if script == STDIN:
        return
    if path.is_dir():
        raise InputError(f"{script!r} is a folder. Name the script in it, or run a package with -m.")
    if not path.exists():
        raise InputError(f"there is no script {script!r} in {Path.cwd()}. Name a Python file: memfit run train.py")


def _checked_record(record: Path | None, *, force: bool) -> Path | None:
    """Where to record; `None` where nobody named a place and the current folder cannot be written."""
    path = record_path(record)
    try:
        refuse_unwritable(path, force=force)
    except UnwritableError as error:
        if record is not None:
            raise
        reason = str(error).partition("cannot be written: ")[2].partition(". ")[0]
        say(
            f"{Path.cwd()} cannot be written ({reason}), so the run leaves no record; --record FILE names another place"
        )
        return None
    return path


def _checked_plan(plan: str | None, budget: str | None) -> str:
    if plan in (AUTO, NONE):
        return plan
    if plan is None:
        return NONE if budget is None else AUTO
    # Refused now, not after minutes of the script's work.
    from memfit.planning.plan import Plan

    Plan.load(plan)
    return str(Path(plan).absolute())


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        status = None if path is None else path.stat()
    except OSError:
        return None
    return status and (status.st_ino, status.st_ctime_ns)


def _verdict(record: Path, old: tuple[int, int] | None) -> dict[Path, str]:
    """How the run ended, in a sentence; nothing where it left no record, or an old one is still there."""
    found = _identity(record)
    if found is None or found == old:
        return {}
    try:
        return {record: str(verdict(read_record(record))["words"])}
    except InputError:
        return {}


def _say_what_was_written(path: Path | None, verdicts: dict[Path, str], ended: Ended) -> None:
    for sentence in verdicts.values():
        say(sentence)
    if verdicts:
        pass
    elif ended.own_loop:
        say("the script trained in a loop of its own, which was watched but not recorded")
    elif ended.trained:
        say("the training could not be recorded")
    else:
        say("no training step of a Keras model ran, so nothing was recorded")
    if path is not None and path.absolute() in verdicts:
        with suppress(OSError, ValueError, AttributeError):
            console = stderr()
            console.print(f"Wrote {path}", soft_wrap=True, markup=False)
            console.print(f"memfit report {path}", soft_wrap=True, markup=False)
