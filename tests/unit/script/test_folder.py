"""What the two processes of a run leave for each other."""

import pytest

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
