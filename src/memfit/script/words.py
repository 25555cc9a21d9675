"""What a run says besides the script: on stderr, so that stdout is the script's alone."""

from typing import NoReturn

from memfit.errors import MemfitError
from memfit.report.console import stderr
from memfit.report.run_words import visible


def say(text: str) -> None:
    """One line of ours between the script's."""
    console = stderr()
    console.print("memfit:", style="bold cyan", end=" ")
    # Names of layers and files stay text.
    console.print(visible(text), soft_wrap=True, markup=False)


def refuse(error: MemfitError) -> NoReturn:
    """Say what cannot be done and end the program: what was asked of memfit is wrong, not the script."""
    console = stderr()
    console.print("error:", style="bold red", end=" ")
    console.print(visible(str(error)), soft_wrap=True, markup=False)
    raise SystemExit(error.exit_code)
