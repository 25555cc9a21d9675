"""Every command and snippet of the README is executed, and every example."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [
    line[2:] for language, text in BLOCKS if language == "console" for line in text.splitlines() if line[:2] == "$ "
]
# Those that trace or train, and what reads what they wrote.
SLOW = re.compile(r"memfit (plan|estimate|run)|example")


def run(command, **options):
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "COLUMNS": "100",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, **options)


def test_every_block_is_of_a_kind_that_is_executed():
    assert {language for language, _ in BLOCKS} == {"python", "console", "text"}


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet(snippet):
    done = run([sys.executable, "-c", snippet])
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=pytest.mark.slow) if SLOW.search(each) else each for each in COMMANDS]
)
def test_command(command):
    program = command.split()[0]
    if program == "make":  # the targets exist; running the tests from a test would not end
        done = run(f"{command} --dry-run", shell=True)
        assert any(each in done.stdout for each in ("python", "examples/"))
    elif program == "pip":  # the extras it names exist
        declared = (ROOT / "pyproject.toml").read_text()
        for extra in re.findall(r"memfit\[(\w+)\]", command):
            assert f"\n{extra} = [" in declared
        return
    else:
        done = run(command, shell=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (text[2:], after)
        for (language, text), (next_one, after) in pairwise(BLOCKS)
        if (language, next_one) == ("console", "text")
    ],
)
def test_output_that_is_shown_is_what_comes_out(command, shown):
    """The words and the order; the numbers may move with every improvement of the model."""
    said = [_without_numbers(line) for line in run(command, shell=True).stdout.splitlines()]
    for line in shown.splitlines():
        assert _without_numbers(line) in {*said, "..."}


def _without_numbers(line):
    return " ".join(re.sub(r"\b[\d.]+\b|█+", "#", line).split())


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example(example):
    demo = (ROOT / "examples" / "demo.sh").read_text()
    if any(f"examples/{example.name}" in command for command in (*COMMANDS, demo)):
        pytest.skip("it is run by a command of the README")
    done = run([sys.executable, str(example)])
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_the_first_look_ends_where_memory_does():
    assert "OOM when allocating tensor" in run([sys.executable, "examples/first_look.py"]).stdout


def test_the_readme_counts_the_catalog_right():
    from memfit.hardware.catalog import catalog

    assert f"lists {len(catalog())} cards" in (ROOT / "README.md").read_text()
    assert f"a catalog of {len(catalog())} GPUs" in (ROOT / "CHANGELOG.md").read_text()
