"""Messages of a run between the script's own: on stderr, so that stdout is the script's alone."""

from contextlib import suppress
from typing import NoReturn

from memfit.errors import MemfitError
from memfit.report.console import stderr
from memfit.report.run_words import visible

_printed: set[str] = set()


def say(text: str) -> None:
    """Print one line of memfit's."""
    _print("memfit:", "bold cyan", text)


def say_once(text: str) -> None:
    """Print one line of memfit's, unless this process has printed it before."""
    if text not in _printed:
        _printed.add(text)
        say(text)


def refuse(error: MemfitError) -> NoReturn:
    """Print why memfit cannot do what was asked, and end the program: the request is wrong, not the script."""
    _print("error:", "bold red", str(error))
    raise SystemExit(error.exit_code)


def _print(label: str, style: str, text: str) -> None:
    # stderr may be closed, or a file on a full disk: a message must not end the training.
    with suppress(OSError, ValueError, AttributeError):
        console = stderr()
        console.print(label, style=style, end=" ")
        # Names of layers and files stay text.
        console.print(visible(text), soft_wrap=True, markup=False)
