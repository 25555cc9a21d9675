"""`memfit doctor`: look at this machine the way TensorFlow will."""

from typing import Annotated

import typer

from memfit.hardware.doctor import diagnose
from memfit.report.console import print_json, stderr, stdout
from memfit.report.doctor import render_diagnosis


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Ask TensorFlow itself, in a child process.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds TensorFlow gets to answer.", min=1)] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine this machine: GPUs, TensorFlow, settings that change memory, and what to mend.

    Exit code 0: fine; 1: findings; 3: broken environment.
    """
    if deep:
        with stderr().status("asking TensorFlow what it sees"):
            diagnosis = diagnose(deep=True, timeout=timeout)
    else:
        diagnosis = diagnose()
    if as_json:
        print_json(diagnosis.to_dict())
    else:
        stdout().print(render_diagnosis(diagnosis))
    raise typer.Exit(diagnosis.exit_code)
