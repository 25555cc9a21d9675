"""`memfit run`: an unmodified script, planned, limited, recorded and kept alive."""

from pathlib import Path
from typing import Annotated

import typer

from memfit.errors import InputError
from memfit.observe.record import read_record
from memfit.observe.writer import record_path, refuse_unwritable
from memfit.report.console import stderr
from memfit.report.run_verdict import verdict
from memfit.script.settings import AUTO, NONE, Settings
from memfit.script.supervisor import end_as, supervise
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
        bool, typer.Option("--recover/--no-recover", help="Go on in a smaller way when memory runs out.")
    ] = True,
    restarts: Annotated[int, typer.Option(min=0, help="How often to start a script again that memory has killed.")] = 3,
    snapshot_every: Annotated[
        float | None,
        typer.Option(help="Seconds between snapshots; by default as many as cost 2 % of the time.", min=0.0),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="The record to write, or a folder for it.", metavar="RECORD")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a record that is there.")] = False,
) -> None:
    """Run a script as python would: its devices set up, its models planned, recorded and kept alive.

    Every fit of a Keras model is watched. When memory runs out, the same batch is done again in a smaller way; when
    that kills the process, it is started again from the last snapshot. Exit code and signals are the script's.
    """
    script, *arguments = command
    _refuse(script, module=module, chosen={"--budget": budget, "--limit": limit, "--growth": growth or None})
    path = record_path(record)
    refuse_unwritable(path, force=force)
    settings = Settings(
        target=script,
        arguments=tuple(arguments),
        record=str(path.absolute()),
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
    code = supervise(settings, say)
    _say_what_was_written(path)
    end_as(code)


def _refuse(script: str, *, module: bool, chosen: dict[str, str | bool | None]) -> None:
    given = [name for name, value in chosen.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are different ways to take memory. Leave all but one of them out.")
    if module:
        return
    path = Path(script)
    if path.is_dir():
        raise InputError(f"{script!r} is a folder. Name the script in it, or run a package with -m.")
    if not path.exists():
        raise InputError(f"there is no script {script!r} in {Path.cwd()}. Name a Python file: memfit run train.py")


def _checked_plan(plan: str | None, budget: str | None) -> str:
    if plan in (AUTO, NONE):
        return plan
    if plan is None:
        return NONE if budget is None else AUTO
    # Refused now, not after minutes of the script's work.
    from memfit.planning.plan import Plan

    Plan.load(plan)
    return str(Path(plan).absolute())


def _say_what_was_written(path: Path) -> None:
    if not path.exists():
        say("the script trained no Keras model, so nothing was recorded")
        return
    say(str(verdict(read_record(path))["words"]))
    console = stderr()
    console.print(f"Wrote {path}", soft_wrap=True, markup=False)
    console.print(f"memfit report {path}", soft_wrap=True, markup=False)
