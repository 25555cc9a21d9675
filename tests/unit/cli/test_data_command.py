"""`memfit data`, with a layout that is given: no file is decoded here."""

import json

import pytest
from typer.testing import CliRunner

from memfit import framework
from memfit.cli import app
from memfit.data import building
from memfit.data.deciding import decide
from memfit.data.facts import Broken, Measured, Split
from memfit.errors import InputError
from memfit.units import KIB, MIB

MEASURED = Measured(
    sampled=64,
    encoded_bytes=100 * KIB,
    decoded_bytes=900 * KIB,
    largest_bytes=3 * MIB,
    sample_bytes=147 * KIB,
    read_seconds=0.0002,
    decode_seconds=0.002,
    broken=(Broken("photos/[/21] x.jpg", "cut"),),
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("cat/x.jpg", "dog/y.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()

    def decided(material, settings):
        splits = [Split("validation", 800, 64), Split("train", 3200, 64, shuffled=True)]
        layout = decide(MEASURED, splits, settings.ram_budget, cores=2)
        return building.Decided(layout, None, None, {}, None)

    monkeypatch.setattr(building, "decided", decided)
    monkeypatch.setattr(framework, "import_for_predicting", lambda: None)

    def call(*arguments):
        return CliRunner().invoke(
            app, ["data", str(tmp_path), "--image-size", "224", *arguments], env={"COLUMNS": "120"}
        )

    return call


def test_it_says_what_is_cached_what_it_takes_and_what_would_be_better(run):
    said = " ".join(run("--ram-budget", "400MiB").output.split())
    for part in (
        "of 400 MiB of host memory", "100 KiB 0.20 ms to read", "validation: 800 samples in batches of 64",
        "all of them fit", "as many as the budget holds", "would hold everything decoded", "photos/[/21] x.jpg cut",
    ):  # fmt: skip
        assert part in said


def test_json_is_for_programs(run):
    told = json.loads(run("--ram-budget", "4GiB", "--json").output)
    assert told["ram_budget_bytes"] == 4 * 2**30
    assert [(split["name"], split["cache"]) for split in told["splits"]] == [
        ("validation", "decoded"),
        ("train", "decoded"),
    ]
    assert told["class_names"] == ["cat", "dog"]
    assert told["left_out"] == [{"path": "photos/[/21] x.jpg", "reason": "cut"}]


@pytest.mark.parametrize("size", ["big", "224x", "1x2x3"])
def test_a_size_that_is_none_is_refused(run, size):
    error = run("--image-size", size).exception
    assert isinstance(error, InputError)
    assert "write 224, or 224x320" in str(error)
