import json

import pytest
from tests.unit.records import model_line, run_line, unet_record, write_record

from memfit.observe.record import read_record
from memfit.report.run_compare import compare
from memfit.report.run_view import run_view
from memfit.units import GIB


@pytest.fixture
def view_of(tmp_path):
    return lambda lines: run_view(read_record(write_record(tmp_path / "run.memfit.jsonl", lines)))


def run_of(peak, seconds=1.0, logs=None):
    return [
        run_line(),
        model_line(["a", "b", "c", "d", "e", "f"], plan=None, estimate=None),
        {
            **{"kind": "steps", "at": 2.0, "phase": "train", "epoch": 1, "first": 1, "count": 1},
            **{"peak_bytes": peak, "seconds": seconds},
        },
        {"kind": "epoch", "at": 3.0, "epoch": 1, "phase": "train", "steps": 1, "logs": logs or {"loss": 0.5}},
        {"kind": "end", "at": 4.0, "outcome": "finished"},
    ]


def test_numbers_are_compared_with_the_first_run(view_of):
    comparison = compare(view_of(run_of(4 * GIB, 1.0)), view_of(run_of(3 * GIB, 1.5, {"loss": 0.25, "new": 1})))
    assert comparison["measured"]["peak_bytes"] == {"a": 4 * GIB, "b": 3 * GIB, "change": -0.25}
    assert comparison["measured"]["train_step_seconds"]["change"] == 0.5
    assert comparison["words"] == "B against A: 1 GiB less at the peak, 50 % slower (1 s to 1.5 s a step)."
    logs = {row["log"]: (row["a"], row["b"]) for row in comparison["epochs"]}
    assert logs == {"loss": (0.5, 0.25), "new": (None, 1)}
    assert json.loads(json.dumps(comparison, allow_nan=False)) == comparison


def test_what_one_of_them_does_not_know_is_unknown(view_of):
    comparison = compare(view_of(run_of(None, None)), view_of(run_of(GIB)))
    assert comparison["measured"]["peak_bytes"]["change"] is None
    assert comparison["words"] == "B against A: the peak of one of them is unknown."


def test_a_loss_that_is_no_number_can_be_compared(view_of):
    comparison = compare(view_of(run_of(GIB, logs={"loss": float("nan")})), view_of(run_of(GIB)))
    assert comparison["epochs"][0] == {
        "epoch": 1,
        "phase": "train",
        "log": "loss",
        "a": "nan",
        "b": 0.5,
        "change": None,
    }


def test_plans_are_told_in_words(view_of):
    comparison = compare(view_of(unet_record()), view_of(run_of(GIB)))
    assert comparison["setup"]["plan"]["a"].startswith("remat 2 segments: predicted to fit in 8 GiB, 11 % slower")
    assert comparison["setup"]["plan"]["b"] == "none"
