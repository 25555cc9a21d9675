import json
import os
import subprocess
import sys

import pytest

from memfit import __version__


def memfit(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "memfit", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", **environment},
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["gpus"], ["doctor", "--json"]])
def test_light_commands_do_not_import_tensorflow(arguments):
    code = (
        "import sys; from memfit.cli import app; "
        f"app({arguments!r}, standalone_mode=False); "
        "sys.exit(9 if {'tensorflow', 'keras', 'numpy'} & set(sys.modules) else 0)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr


def test_version():
    assert memfit("--version").stdout.strip() == f"memfit {__version__}"


def test_help_lists_the_commands():
    shown = memfit("--help").stdout
    assert "doctor" in shown
    assert "gpus" in shown


def test_gpus_as_json_is_bytes_and_plain_values():
    (card,) = json.loads(memfit("gpus", "a100-80", "--json").stdout)
    assert card["name"] == "A100 SXM4 80GB"
    assert card["memory_bytes"] == 81920 * 2**20
    assert card["compute_capability"] == "8.0"


def test_the_catalog_fits_a_terminal_of_80_columns():
    lines = memfit("gpus", COLUMNS="80").stdout.splitlines()
    assert len(lines) > 100
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gpus", "rtx 9090"], "Did you mean"),
        (["gpus", "-4GiB"], "No such option"),
        (["gpus", "0GiB"], "more than zero"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments, says):
    done = memfit(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback():
    done = memfit("--debug", "gpus", "rtx 9090")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_doctor_exit_code_and_json_agree():
    done = memfit("doctor", "--json", KERAS_BACKEND="jax")
    diagnosis = json.loads(done.stdout)
    assert done.returncode == diagnosis["exit_code"] == 3
    assert any("KERAS_BACKEND=tensorflow" in (finding["fix"] or "") for finding in diagnosis["findings"])


def test_doctor_shows_findings_with_the_line_to_paste():
    done = memfit("doctor", TF_FORCE_UNIFIED_MEMORY="1")
    assert done.returncode == 1
    assert "$ unset TF_FORCE_UNIFIED_MEMORY" in done.stdout


def test_no_color_in_a_pipe():
    assert "\x1b[" not in memfit("doctor").stdout
