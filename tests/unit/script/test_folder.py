"""What the two processes of a run leave for each other."""

import errno
import os
import types
from pathlib import Path

import pytest

from memfit.script import words
from memfit.script.folder import Progress, RunFolder
from memfit.script.settings import Settings


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_settings_arrive_as_they_were_sent(folder):
    settings = Settings("train.py", ("--epochs", "3"), "run.memfit.jsonl", budget=2**30, restarts=2)
    folder.write_settings(settings)
    assert folder.settings() == settings


def test_there_is_no_progress_before_the_first_fit(folder):
    assert folder.progress() is None
    made = Progress(1, True, "5-abc", {"micro_batch": 8, "remat": ["a..b"]}, True)
    folder.write_progress(made)
    assert folder.progress() == made
    folder.forget_progress()
    assert folder.progress() is None


def test_a_script_that_is_started_again_has_to_find_a_smaller_plan_first(folder):
    folder.begin_again()
    assert folder.progress() is None
    folder.write_progress(Progress(1, True, "5-abc", {}, True, "OOM when allocating."))
    folder.begin_again()
    assert folder.progress() == Progress(1, True, "5-abc", {}, smaller=False)


def test_only_the_last_snapshots_are_kept(folder, tmp_path):
    for fit in range(1, 31):
        folder.write_snapshot(fit, {"fit": fit})
    assert folder.snapshot(30) == {"fit": 30}
    assert folder.snapshot(1) is None
    assert len(list(tmp_path.glob("*.pickle"))) == 20


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"budget": 8 * 2**30}, "--budget 8GiB"),
        ({"limit": 512 * 2**20}, "--limit 512MiB"),
        ({"growth": True}, "--growth"),
        ({}, None),
    ],
)
def test_the_devices_option_is_said_as_it_was_written(given, option):
    assert Settings("train.py", (), "r", **given).device_option == option


def fails_with(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_cannot_be_written_costs_the_snapshot_and_is_said_once(folder, monkeypatch, capsys, number):
    monkeypatch.setattr(words, "_printed", set())
    assert folder.write_snapshot(1, "before")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fails_with(number))
        assert not folder.write_snapshot(1, "after")
        assert not folder.write_snapshot(2, "after")
    assert capsys.readouterr().err.count(f"no snapshot could be taken: {os.strerror(number)}") == 1
    assert folder.snapshot(1) == "before"
    assert [path.name for path in folder.path.iterdir()] == ["fit-1.pickle"]


def test_a_snapshot_leaves_room_for_the_scripts_own_files(folder, monkeypatch, capsys):
    monkeypatch.setattr(words, "_printed", set())
    room = types.SimpleNamespace(f_bavail=3, f_frsize=1000)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    assert folder.write_snapshot(1, b"0" * 1000)
    assert not folder.write_snapshot(1, b"0" * 2000)
    assert "No space left" in capsys.readouterr().err


def test_progress_that_cannot_be_written_is_not_an_old_one(folder, monkeypatch):
    """A stale one would start a script again that has long left its fit."""
    folder.write_progress(Progress(1, True, "m", {}, True))
    monkeypatch.setattr(Path, "replace", fails_with(errno.ENOSPC))
    folder.write_progress(Progress(1, False, "m", {}, True))
    assert folder.progress() is None
    assert folder.trained()


def test_what_cannot_be_pickled_costs_the_snapshot(folder, monkeypatch, capsys):
    monkeypatch.setattr(words, "_printed", set())
    assert not folder.write_snapshot(1, lambda: None)
    assert "no snapshot could be taken: " in capsys.readouterr().err


def test_a_snapshot_that_cannot_be_read_is_none(folder, capsys):
    (folder.path / "fit-1.pickle").write_bytes(b"no pickle")
    assert folder.snapshot(1) is None
    assert "The fit starts from its beginning" in capsys.readouterr().err


def test_a_loop_without_fit_is_remembered(folder):
    assert not folder.own_loop()
    folder.note_own_loop()
    assert folder.own_loop()


def test_a_script_from_stdin_is_read_once(folder):
    assert folder.piped_source(lambda: b"print(1)") == b"print(1)"
    assert folder.piped_source(lambda: b"") == b"print(1)"
