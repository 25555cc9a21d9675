import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.records import run_line, unet_record, write_record
from typer.testing import CliRunner

from memfit.cli import app
from memfit.errors import InputError


@pytest.fixture
def report(monkeypatch, tmp_path):
    """Run the command in a folder with one record."""
    monkeypatch.chdir(tmp_path)
    write_record(tmp_path / "run-1.memfit.jsonl", unet_record())
    return lambda *options: CliRunner(env={"COLUMNS": "80"}).invoke(app, ["report", *options])


def test_the_newest_record_becomes_a_page_beside_it(report, tmp_path):
    os.utime(tmp_path / "run-1.memfit.jsonl", (1, 1))
    write_record(tmp_path / "run-2.memfit.jsonl", unet_record(steps=40))
    done = report()
    assert done.exit_code == 0, done.exception
    assert done.stdout.splitlines()[0] == "Wrote run-2.memfit.html"
    assert (tmp_path / "run-2.memfit.html").read_text().startswith("<!doctype html>")


def test_a_folder_means_the_newest_record_in_it(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    assert report(tmp_path.name).stdout.splitlines()[0] == f"Wrote {tmp_path.name}/run-1.memfit.html"


def test_a_page_is_written_where_it_was_asked_for(report, tmp_path):
    done = report("run-1.memfit.jsonl", "-o", "page.html")
    assert done.exit_code == 0
    assert "Wrote page.html" in done.stdout
    assert (tmp_path / "page.html").exists()


def test_nothing_is_overwritten_without_force(report, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    done = report("-o", "page.html")
    assert isinstance(done.exception, InputError)
    assert "--force" in str(done.exception)
    assert page.read_text() == "mine"
    assert report("-o", "page.html", "--force").exit_code == 0
    assert page.read_text().startswith("<!doctype html>")


def test_json_is_the_view(report, tmp_path):
    done = report("--json")
    view = json.loads(done.stdout)
    assert view["memfit_view"] == 1
    assert view["verdict"]["state"] == "recovered"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1.memfit.jsonl"]


def test_json_has_names_as_they_are(report, tmp_path):
    lines = unet_record(hostile=True)
    lines[1]["model"] = ":fire: [bold]x[/bold] \u202e"
    write_record(tmp_path / "run-1.memfit.jsonl", lines)
    assert json.loads(report("--json").stdout)["models"][0]["model"] == lines[1]["model"]


def test_the_terminal_shows_the_run(report, tmp_path):
    done = report("--terminal")
    assert done.stdout.startswith("peak 7.85 GiB of 8 GiB")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1.memfit.jsonl"]


def test_two_runs_are_compared(report, tmp_path):
    write_record(tmp_path / "run-2.memfit.jsonl", unet_record(step_seconds=0.155))
    both = ["--compare", "run-1.memfit.jsonl", "run-2.memfit.jsonl"]
    assert "50 % faster" in report(*both, "--terminal").stdout
    assert json.loads(report(*both, "--json").stdout)["memfit_comparison"] == 1
    assert report(*both).stdout.startswith("Wrote run-1-against-run-2.memfit.html")
    assert "<title>Two runs compared" in (tmp_path / "run-1-against-run-2.memfit.html").read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["missing.memfit.jsonl"], "there is no record missing.memfit.jsonl"),
        (["--compare", ".", "."], "cannot be read"),
        (["broken"], "there is no record"),
        (["broken.memfit.jsonl"], "is not a record of memfit"),
        (["newer.memfit.jsonl"], "was written by a later memfit"),
        (["--json", "--terminal"], "two ways to show the same"),
        (["--json", "-o", "x.html"], "names a page"),
        (["run-1.memfit.jsonl", "--compare", "a", "b"], "one too many"),
        (["-o", "no/such/folder.html"], "a folder that exists"),
        (["-o", "."], "must be a file"),
        (["--compare", "run-1.memfit.jsonl", "missing"], "there is no record missing"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(report, tmp_path, options, says):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken.memfit.jsonl").write_text("this is no JSON\n")
    write_record(tmp_path / "newer.memfit.jsonl", [run_line(memfit_record=2)])
    os.utime(tmp_path / "run-1.memfit.jsonl", (9e9, 9e9))
    before = {path.name for path in tmp_path.iterdir()}
    done = report(*options)
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 2
    assert says in str(done.exception)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_folder_without_records_says_so(report, tmp_path):
    (tmp_path / "run-1.memfit.jsonl").unlink()
    done = report()
    assert isinstance(done.exception, InputError)
    assert "there is no record" in str(done.exception)


def test_a_page_that_may_not_be_written_is_refused(report, monkeypatch):
    opened = Path.open

    def denied(self, mode="r", *arguments, **options):
        if "x" in mode:
            raise PermissionError(13, "Permission denied")
        return opened(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
    done = report("-o", "page.html")
    assert isinstance(done.exception, InputError)
    assert "'page.html' cannot be written: Permission denied" in str(done.exception)


def test_a_record_cut_by_a_kill_opens(report, tmp_path):
    record = tmp_path / "run-1.memfit.jsonl"
    record.write_bytes(record.read_bytes()[:-40])
    done = report("--terminal")
    assert done.exit_code == 0
    assert "was killed, or crashed" in done.stdout


def test_an_error_ends_with_2_and_one_sentence(tmp_path):
    child = [sys.executable, "-m", "memfit", "report", "none.memfit.jsonl"]
    done = subprocess.run(child, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no record")
    assert "Traceback" not in done.stderr


def test_neither_help_nor_a_page_imports_tensorflow(report, tmp_path):
    for arguments in (["report", "--help"], ["report", "run-1.memfit.jsonl", "-o", "page.html"]):
        code = (
            f"import sys; from memfit.cli import app; app({arguments!r}, standalone_mode=False); "
            "sys.exit(9 if {'tensorflow', 'keras', 'numpy'} & set(sys.modules) else 0)"
        )
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert child.returncode == 0, child.stderr
    assert (tmp_path / "page.html").exists()
