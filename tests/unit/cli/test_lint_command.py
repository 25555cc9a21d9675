import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memfit.cli import app
from memfit.errors import InputError
from memfit.lint.registry import RULES

ROOT = Path(__file__).parents[3]
TEXT = """\
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
tf.config.experimental.set_memory_growth(gpus[0], True)
total = tf.reduce_sum(
    tf.stack([gpus, gpus]),
    axis=0,
)
"""


@pytest.fixture
def lint(monkeypatch, tmp_path):
    """Run the command in a folder with one script."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TEXT)
    return lambda *options: CliRunner(env={"COLUMNS": "100"}).invoke(app, ["lint", *options])


def test_a_finding_is_shown_with_its_line_why_and_what_to_write(lint):
    done = lint("train.py", "--select", "MF022")
    assert done.exit_code == 1
    assert done.stdout == (
        "train.py:4:1: MF022 memory growth is set for `gpus[0]` alone\n"
        "  |\n"
        "4 | tf.config.experimental.set_memory_growth(gpus[0], True)\n"
        "  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  = why: With several GPUs TensorFlow stops with an error: memory growth must be the same for all of them.\n"
        '  = instead: for gpu in tf.config.list_physical_devices("GPU"): '
        "tf.config.experimental.set_memory_growth(gpu, True)\n"
        "  = fix: --fix writes it\n"
        "\n"
        "Found 1 in 1 file. 1 can be mended with --fix.\n"
        "memfit lint --explain MF022 says more about a rule.\n"
    )


def test_a_finding_over_several_lines(lint):
    shown = lint("train.py", "--select", "MF031").stdout
    assert "5 | total = tf.reduce_sum(\n  |         ^^^^^^^^^^^^^^\n" in shown
    assert "6 |     tf.stack([gpus, gpus]),\n  |     ^^^^^^^^^^^^^^^^^^^^^^^\n" in shown
    assert "  | ...\n" in shown


def test_nothing_found_is_exit_code_0(lint, tmp_path):
    (tmp_path / "fine.py").write_text("import keras\n")
    done = lint("fine.py")
    assert (done.exit_code, done.stdout) == (0, "Nothing found in 1 file.\n")
    assert lint("fine.py", "--format", "github").stdout == ""


def test_a_broken_file_is_exit_code_2_and_the_rest_is_linted(lint, tmp_path):
    (tmp_path / "broken.py").write_text("import keras\nx = = 1\n")
    done = lint(".")
    assert done.exit_code == 2
    assert "broken.py:2: not linted: syntax error" in done.stdout
    assert "train.py:4:1: MF022" in done.stdout


def test_the_readme_shows_what_comes_out(lint, tmp_path):
    (tmp_path / "train.py").write_text(
        """import tensorflow as tf


def read(path):
    return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), 3), (224, 224))


def pipeline(paths):
    data = tf.data.Dataset.from_tensor_slices(paths)
    return data.map(read).shuffle(len(paths)).batch(32).prefetch(2)
"""
    )
    shown = re.search(r"```text\n(train\.py:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert lint("train.py").stdout.startswith(shown)
    assert f"{len(RULES)} rules" in (ROOT / "README.md").read_text()


def test_json_for_programs(lint):
    result = json.loads(lint("train.py", "--format", "json").stdout)
    assert result["files"] == 1
    first, second = result["findings"]
    assert (first["code"], first["line"], first["column"], first["cell"], first["fix"]) == ("MF022", 4, 1, None, "safe")
    assert (second["code"], second["end_line"], second["fix"]) == ("MF031", 8, "unsafe")


def test_annotations_for_github(lint, tmp_path):
    (tmp_path / "broken,1.py").write_text("import keras\nx = = 1\n")
    lines = lint(".", "--format", "github", "--select", "MF022").stdout.splitlines()
    assert lines[0].startswith("::warning file=train.py,line=4,col=1,endLine=4,endColumn=56,title=MF022 memory-growth")
    assert "for all of them. Instead: " in lines[0]
    assert lines[1] == "::error file=broken%2C1.py,line=2,title=not linted::syntax error: invalid syntax"


def test_fixes_are_written_and_counted(lint, tmp_path):
    done = lint("train.py", "--fix")
    assert done.exit_code == 1, "the other one is left"
    assert "Found 1 in 1 file, 1 mended." in done.stdout
    assert "for gpu in gpus:" in (tmp_path / "train.py").read_text()
    done = lint("train.py", "--fix", "--unsafe-fixes")
    assert (done.exit_code, done.stdout) == (0, "Nothing found in 1 file, 1 mended.\n")
    assert "total = tf.add_n([gpus, gpus])" in (tmp_path / "train.py").read_text()


@pytest.mark.parametrize("named", ["MF018", "mf018", "changing-python-argument"])
def test_the_page_of_a_rule(lint, named):
    page = lint("--explain", named).stdout
    assert page.startswith("# changing-python-argument (MF018)\n")
    assert "## Why is this bad" in page
    assert "train_step(x, step)" in page


def test_the_list_of_rules(lint):
    lines = lint("--rules").stdout.splitlines()
    assert len(lines) >= 20
    assert lines[0].startswith("MF001  dataset-stacked-in-memory")


def test_selecting_and_ignoring(lint):
    done = lint("train.py", "--format", "json", "--select", "MF02,MF031", "--ignore", "memory-growth-for-one-gpu")
    assert [each["code"] for each in json.loads(done.stdout)["findings"]] == ["MF031"]


def test_the_configuration_is_the_files_own_unless_it_is_left_alone(lint, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.memfit.lint]\nignore = ["MF022", "MF031"]\n')
    assert lint("train.py").exit_code == 0
    assert lint("train.py", "--select", "MF").exit_code == 0, "what is ignored stays so"
    assert lint("train.py", "--no-config").exit_code == 1
    monkeypatch.chdir("/")
    assert lint(str(tmp_path / "train.py")).exit_code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "nothing to lint"),
        (["nowhere.py"], "is not there"),
        (["train.py", "--select", "MF099"], "Did you mean MF0"),
        (["train.py", "--ignore", "missing-prefetsh"], "Did you mean missing-prefetch?"),
        (["--explain", "MF0112"], "Did you mean MF0"),
        (["train.py", "--unsafe-fixes"], "Add --fix"),
    ],
)
def test_wrong_input_says_what_to_write(lint, options, says):
    done = lint(*options)
    assert isinstance(done.exception, InputError)
    assert says in str(done.exception)
    assert done.exception.exit_code == 2


def test_it_runs_as_a_command_without_tensorflow(tmp_path):
    (tmp_path / "train.py").write_text(TEXT)
    code = (
        "import sys; from memfit.cli import app\n"
        "try: app(['lint', 'train.py'])\n"
        "except SystemExit as end: code = end.code\n"
        "sys.exit(9 if {'tensorflow', 'keras', 'numpy'} & set(sys.modules) else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "train.py:4:1" in done.stdout
    assert Path(tmp_path / "train.py").read_text() == TEXT
