import json
from dataclasses import replace

import pytest
from tests.unit.records import LIMIT, model_line, run_line, timeline_line, unet_record, write_record

from memfit.observe.record import read_record
from memfit.report.run_series import COLUMNS, MOST_ROWS, MOST_TENSORS, MOST_TIMELINES, bands, thin_points
from memfit.report.run_view import run_view
from memfit.units import GIB, MIB

LAYERS = ["first", "second", "third", "fourth", "fifth", "sixth"]


@pytest.fixture
def view_of(tmp_path):
    return lambda lines: run_view(read_record(write_record(tmp_path / "run.memfit.jsonl", lines)))


def end(outcome="finished", **more):
    return {"kind": "end", "at": 90.0, "outcome": outcome, **more}


def step(first=1, at=1.0, peak=GIB, phase="train", **more):
    return {
        **{"kind": "steps", "at": at, "phase": phase, "epoch": 1, "first": first, "count": 1},
        **{"peak_bytes": peak, **more},
    }


def out_of_memory(at=2.0):
    return {
        **{"kind": "out_of_memory", "at": at, "phase": "train", "epoch": 1, "step": 7, "layer": "conv"},
        **{"asked_bytes": GIB, "in_use_bytes": 7 * GIB},
    }


def recovery(at=3.0, restart=False):
    return {"kind": "recovery", "at": at, "phase": "train", "what": "slices", "seconds": 4.5, "restart": restart}


def test_a_view_is_json_and_says_which_keys_it_has(view_of):
    view = view_of(unet_record())
    assert json.loads(json.dumps(view, allow_nan=False)) == view
    documented = run_view.__globals__["__doc__"]
    assert not [key for key in view if f"`{key}`" not in documented]


def test_the_headline_has_the_highest_peak_and_where_it_was(view_of):
    verdict = view_of([run_line(), step(1, 1.0, GIB), step(2, 2.0, 3 * GIB), end()])["verdict"]
    assert (verdict["peak_bytes"], verdict["peak_step"], verdict["limit_bytes"]) == (3 * GIB, 2, LIMIT)
    assert verdict["free_bytes"] == 5 * GIB
    assert verdict["share_of_limit"] == 0.375


@pytest.mark.parametrize(
    ("lines", "state", "says"),
    [
        ([step(), end()], "fits", "with 7 GiB to spare"),
        ([step(peak=LIMIT - MIB), end()], "tight", "only 1 MiB to spare"),
        (
            [step(), out_of_memory(), recovery(), end()],
            "recovered",
            "out of memory once and recovered, at a cost of 4.5 s",
        ),
        (
            [step(), out_of_memory(), recovery(restart=True), end()],
            "recovered",
            "once and recovered, and was restarted once, at",
        ),
        ([step(), out_of_memory()], "out-of-memory", "train step 7. conv asked for 1 GiB while 7 GiB were in use."),
        ([step(), out_of_memory(), end("failed", error="OOM")], "out-of-memory", "Ran out of memory"),
        ([step(), end("failed", error="ValueError: no")], "failed", "ValueError: no. Memory was not the reason."),
        (
            [step(), out_of_memory(at=1.5), recovery(at=2.0), end("failed", error="ValueError: no")],
            "failed",
            "Failed: ValueError: no. It ran out of memory once before and continued. The peak was 1 GiB of 8 GiB.",
        ),
        ([step(), end("failed", exit_code=1)], "failed", "Failed with exit code 1. The peak was 1 GiB of 8 GiB."),
        (
            [out_of_memory(at=1.0), step(1, 2.0), end("failed", error="ValueError: no")],
            "failed",
            "It ran out of memory once before and continued.",
        ),
        ([step(peak=0), end()], "unknown", "no memory statistics"),
        ([step(), end("interrupted")], "interrupted", "The peak was 1 GiB of 8 GiB."),
        ([step()], "died", "was killed, or crashed"),
        ([step(peak=None), end()], "unknown", "no memory statistics"),
        ([end()], "unknown", "no memory statistics"),
    ],
)
def test_the_verdict_in_words(view_of, lines, state, says):
    verdict = view_of([run_line(), *lines])["verdict"]
    assert verdict["state"] == state
    assert says in verdict["words"]


def test_without_a_limit_nothing_is_said_about_it(view_of):
    verdict = view_of([run_line(limit_bytes=None), step(), end()])["verdict"]
    assert verdict["limit_bytes"] is verdict["share_of_limit"] is verdict["free_bytes"] is None
    assert verdict["state"] == "fits"


def test_a_long_run_is_thinned_and_keeps_its_extremes(view_of):
    lines = [step(at + 1, at / 10, 2 * GIB, in_use_bytes=5 * MIB, least_in_use_bytes=4 * MIB) for at in range(20_000)]
    lines[7_777] |= {"peak_bytes": 6 * GIB}
    lines[12_345] |= {"least_in_use_bytes": MIB, "slowest_seconds": 9.0}
    series = view_of([run_line(), *lines, end()])["series"]
    assert tuple(series) == COLUMNS
    assert {len(column) for column in series.values()} == {4000}
    assert max(series["peak_bytes"]) == 6 * GIB
    assert min(series["least_in_use_bytes"]) == MIB
    assert [seconds for seconds in series["slowest_seconds"] if seconds] == [9.0]
    assert sum(series["count"]) == 20_000
    assert series["at"] == sorted(series["at"])


def test_phases_are_not_put_together_where_they_need_not_be(view_of):
    phases = ["train"] * 150 + ["validation"] * 7
    lines = [step(at + 1, float(at), GIB, phase=phases[at % 157]) for at in range(9000)]
    series = view_of([run_line(), *lines, end()])["series"]
    assert len(series["at"]) <= MOST_ROWS
    ends = [round(at) for at in series["at"]]
    for previous, at, phase in zip([-1, *ends], ends, series["phase"], strict=False):
        assert {phases[each % 157] for each in range(previous + 1, at + 1)} == {phase}


def test_phases_that_change_at_every_step_are_put_together(view_of):
    lines = [step(at + 1, float(at), (at % 2 + 1) * GIB, phase=("train", "predict")[at % 2]) for at in range(9000)]
    series = view_of([run_line(), *lines, end()])["series"]
    assert len(series["at"]) <= MOST_ROWS
    # The one with the higher peak gives its name.
    assert set(series["phase"]) == {"predict"}


def test_a_record_of_100_000_steps_gives_a_small_view(view_of):
    view = view_of(unet_record(steps=100_000, epochs=20))
    assert len(view["series"]["at"]) <= MOST_ROWS
    assert len(json.dumps(view)) < 2_000_000
    assert view["phases"][0]["steps"] == 100_000


def test_thousands_of_epochs_are_shown_by_their_ends(view_of):
    epochs = [{"kind": "epoch", "at": float(at), "epoch": at, "phase": "train", "steps": 1} for at in range(1, 2001)]
    view = view_of([run_line(), *epochs, end()])
    assert len(view["epochs"]) == 500
    assert (view["epochs"][0]["epoch"], view["epochs"][-1]["epoch"]) == (1, 2000)
    assert view["left_out"]["epochs"] == 1500


def test_what_is_not_known_stays_unknown(view_of):
    view = view_of([run_line(), step(peak=None), end()])
    assert view["series"]["peak_bytes"] == view["series"]["seconds"] == [None]
    assert view["phases"][0]["median_step_seconds"] is None
    assert view["phases"][0]["peak_bytes"] is None


def test_a_loss_that_is_no_number_is_kept_as_a_word(view_of):
    epoch = {"kind": "epoch", "at": 1.0, "epoch": 1, "phase": "train", "steps": 1, "logs": {"loss": float("nan")}}
    assert view_of([run_line(), epoch])["epochs"][0]["logs"] == {"loss": "nan"}


def test_the_profiled_steps_with_the_highest_peaks_are_kept_in_the_order_of_time(view_of):
    lines = [timeline_line(LAYERS, step=at, at=float(at)) | {"peak_bytes": at * MIB} for at in range(1, 8)]
    view = view_of([run_line(), *reversed(lines), end()])
    assert [step["step"] for step in view["timelines"]] == [4, 5, 6, 7]
    assert len(view["timelines"]) == MOST_TIMELINES
    assert view["left_out"]["timelines"] == 3
    # The same operations are written once for all of them.
    assert len(view["operations"]) == len({tuple(each) for each in view["operations"]})


def test_points_name_their_operation(view_of):
    line = timeline_line(LAYERS, step=1, at=1.0)
    view = view_of([run_line(), line, end()])
    recorded = [tuple(line["names"][point[2]].values()) for point in line["points"]]
    shown = [tuple(view["operations"][point[2]]) for point in view["timelines"][0]["points"]]
    assert shown == recorded


def test_the_parts_of_a_step_are_told_apart(view_of):
    view = view_of([run_line(), timeline_line(LAYERS, step=1, at=1.0), end()])
    assert [band["part"] for band in view["timelines"][0]["bands"]] == ["forward", "backward", "update"]


def test_a_short_change_of_part_does_not_cut_a_band():
    moments = [(at, "forward" if at != 50 else "backward") for at in range(1000)] + [
        (1000, "backward"),
        (2000, "update"),
    ]
    assert bands(moments) == [
        {"part": "forward", "from_us": 0, "to_us": 1000},
        {"part": "backward", "from_us": 1000, "to_us": 2000},
    ]
    assert bands([]) == []


def test_thinned_points_keep_the_peak_and_the_lowest():
    points = [(at, 1000 + at % 7, 0, 0) for at in range(9000)]
    points[4321], points[5000] = (4321, 9999, 0, 0), (5000, 1, 0, 0)
    kept = thin_points(points, 2000)
    assert len(kept) <= 2000
    assert kept == sorted(kept)
    assert {(4321, 9999, 0, 0), (5000, 1, 0, 0)} <= set(kept)


def test_what_holds_the_bytes_adds_up_to_the_peak(view_of):
    (shown,) = view_of([run_line(), timeline_line(LAYERS, step=1, at=1.0), end()])["timelines"]
    told = sum(size for layer in shown["by_layer"] for size in layer["kinds"].values())
    assert told + shown["not_attributed_bytes"] == shown["peak_bytes"]
    assert [row["bytes"] for row in shown["at_peak"]] == sorted(
        (row["bytes"] for row in shown["at_peak"]), reverse=True
    )


def test_of_very_many_tensors_the_rest_is_counted(view_of):
    line = timeline_line(LAYERS, step=1, at=1.0)
    one = line["at_peak"][0]
    line["at_peak"] = [{**one, "layer": f"layer{at}", "bytes": 10_000 - at} for at in range(2000)]
    (shown,) = view_of([run_line(), line, end()])["timelines"]
    assert len(shown["at_peak"]) == MOST_TENSORS
    assert shown["at_peak_left_out"] == 1500
    assert shown["by_layer"][-1]["layers"] == 2000 - 60
    told = sum(size for layer in shown["by_layer"] for size in layer["kinds"].values())
    assert told == sum(tensor["bytes"] for tensor in line["at_peak"])


def test_predicted_stands_next_to_measured(view_of):
    planned = view_of(unet_record())["models"][0]["predicted"]
    assert [row["what"] for row in planned] == ["steady peak, planned", "steady peak, plain", "validation"]
    assert planned[0]["predicted_bytes"] == int(7.2 * GIB)
    # The first step, in which kernels are tried out, took 7.85 GiB.
    assert planned[0]["measured_bytes"] < int(7.4 * GIB)
    assert planned[0]["inside_band"] is True
    assert planned[1]["not_run"] is True

    plain = view_of([run_line(), model_line(LAYERS, plan=None), step(1, 2.0, 10 * GIB), step(2, 3.0, 9 * GIB), end()])
    rows = {row["what"]: row["measured_bytes"] for row in plain["models"][0]["predicted"]}
    assert rows == {"steady peak": 9 * GIB, "first step": 10 * GIB, "validation": None}


def test_each_model_has_its_own_steps(view_of):
    first, second = model_line(LAYERS, at=1.0, plan=None), model_line(LAYERS, model="other", at=10.0, plan=None)
    steps = [step(1, 2.0, 3 * GIB), step(2, 3.0, 3 * GIB), step(3, 11.0, 5 * GIB), step(4, 12.0, 5 * GIB)]
    models = view_of([run_line(), first, *steps[:2], second, *steps[2:], end()])["models"]
    assert [model["predicted"][0]["measured_bytes"] for model in models] == [3 * GIB, 5 * GIB]


def test_without_a_profiled_step_the_estimate_says_what_is_in_memory(view_of):
    predicted = view_of([run_line(), model_line(LAYERS), step(), end()])["predicted_at_peak"]
    assert predicted["kinds"]["activations"] == int(8.1 * GIB)
    assert predicted["tensors"][0]["predicted_bytes"] == 512 * MIB
    assert view_of([run_line(), step(), end()])["predicted_at_peak"] is None


@pytest.mark.parametrize(
    "plan", [{"techniques": 3, "parts": [4, {}], "rejected": "x"}, {"techniques": {"remat": 1.5}, "parts": None}, {}]
)
def test_a_plan_that_is_none_does_no_harm(view_of, plan):
    estimate = {"steady_peak_bytes": "much", "phases": 3, "breakdown": {"x_bytes": "y"}, "largest": [1, {"bytes": "a"}]}
    view = view_of([run_line(), model_line(LAYERS, plan=plan, estimate=estimate), step(), end()])
    assert view["models"][0]["predicted"][0]["predicted_bytes"] is None


def test_the_worst_finding_comes_first(view_of):
    finding = {"kind": "finding", "at": 1.0, "id": "x", "title": "t", "evidence": "e", "cause": "c", "fix": "f"}
    lines = [finding | {"severity": severity} for severity in ("note", "problem", "warning")]
    view = view_of([run_line(), *lines])
    assert [each["severity"] for each in view["findings"]] == ["problem", "warning", "note"]


def test_a_run_that_was_killed_at_once_can_be_shown(tmp_path):
    path = tmp_path / "run.memfit.jsonl"
    path.write_bytes(b'{"kind": "run", "mem')
    view = run_view(read_record(path))
    assert view["run"]["device"] is None
    assert view["verdict"]["state"] == "died"


def test_the_record_itself_is_not_changed(tmp_path):
    record = read_record(write_record(tmp_path / "run.memfit.jsonl", unet_record()))
    before = replace(record)
    run_view(record)
    assert record == before
