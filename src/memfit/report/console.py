"""The consoles everything is printed on: results on stdout, messages on stderr."""

import json

from rich.console import Console


def stdout() -> Console:
    """The console for results; honours NO_COLOR and falls back to plain text in a pipe."""
    return _plain_console(stderr=False)


def stderr() -> Console:
    """The console for errors and progress."""
    return _plain_console(stderr=True)


def _plain_console(*, stderr: bool) -> Console:
    # A layer may be called ":fire:" and must not become a picture of one.
    return Console(stderr=stderr, highlight=False, emoji=False)


def print_json(value: object) -> None:
    """Write a value as JSON to stdout, readable for people and for programs."""
    stdout().print(json.dumps(value, indent=2), soft_wrap=True, markup=False)
