"""The command line: one file per command, registered here."""

import os
import sys
from typing import Annotated

import typer

from memfit import __version__
from memfit.cli import data, doctor, estimate, gpus, lint, plan, report, run
from memfit.errors import MemfitError
from memfit.report.console import stderr

app = typer.Typer(
    name="memfit",
    help="Make Keras/TensorFlow training fit in the GPU memory there is.",
    epilog="Exit codes: 0 fine, 1 the answer is no, 2 wrong input, 3 broken environment.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("data")(data.data)
app.command("doctor")(doctor.doctor)
app.command("estimate")(estimate.estimate)
app.command("gpus")(gpus.gpus)
app.command("lint")(lint.lint)
app.command("plan")(plan.plan)
app.command("report")(report.report)
app.command("run", context_settings=run.CONTEXT)(run.run)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memfit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del version
    if debug:
        os.environ["MEMFIT_DEBUG"] = "1"


def main() -> None:
    """Run the command line; an error of ours is one sentence and its exit code, not a traceback."""
    try:
        app()
    except MemfitError as error:
        if os.environ.get("MEMFIT_DEBUG"):
            raise
        stderr().print(f"[bold red]error:[/] {error}", markup=True, soft_wrap=True)
        sys.exit(error.exit_code)
