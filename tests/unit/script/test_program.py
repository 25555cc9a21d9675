"""Python's own options on a command line."""

import pytest

from memfit.script.program import interpreter_options


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["python", "-m", "memfit", "run", "-O"], []),
        (["python", "-O", "-W", "error", "-Xdev", "-m", "memfit"], ["-O", "-W", "error", "-Xdev"]),
        (["python", "-X", "importtime", "/bin/memfit", "-O"], ["-X", "importtime"]),
        (["python", "-B", "-"], ["-B"]),
        (["python"], []),
    ],
)
def test_options_end_where_the_program_begins(command, options):
    assert interpreter_options(command) == options
