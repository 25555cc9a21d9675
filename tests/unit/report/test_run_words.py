import pytest
from tests.unit.records import HOSTILE

from memfit.report.plan_words import plan_sentence
from memfit.report.run_words import change_words, count_words, difference_words, log_words, seconds_words, visible


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "unknown"),
        (0, "0 µs"),
        (12e-6, "12 µs"),
        (0.3104, "310 ms"),
        (0.9999, "1 s"),
        (6.2, "6.2 s"),
        (59.96, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_times_are_read_with_three_digits(seconds, words):
    assert seconds_words(seconds) == words


def test_changes_have_a_sign():
    assert [change_words(change) for change in (0.12, -0.034, 0.0, 1e-5, None)] == [
        "+12 %",
        "-3.4 %",
        "0 %",
        "0 %",
        "unknown",
    ]


def test_counts_are_grouped():
    assert count_words(31031745) == "31\u202f031\u202f745"
    assert count_words(None) == "unknown"


def test_logs_keep_what_is_no_number():
    assert [log_words(value) for value in (0.123456, 1e-7, "nan", None)] == ["0.1235", "1e-07", "nan", "unknown"]


def test_counts_differ_by_how_many_and_sizes_by_how_much():
    assert difference_words({"a": 0, "b": 2, "change": None}, "retraces") == "+2"
    assert difference_words({"a": 4, "b": 3, "change": -0.25}, "peak_bytes") == "-25 %"
    assert difference_words({"a": 4, "b": 4, "change": 0.0}, "peak_bytes") == "\u2013"
    assert difference_words({"a": None, "b": 4, "change": None}, "retraces") == "unknown"


@pytest.mark.parametrize("name", HOSTILE)
def test_controls_are_shown_as_escapes_and_text_stays(name):
    shown = visible(name)
    assert shown.isprintable()
    assert "alert" in shown or "\\u" in shown


def test_emoji_and_other_scripts_stay_as_they_are():
    text = "👩\u200d🔬 слой 層 a\nb"
    assert visible(text) == text


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (None, "none"),
        ({"techniques": {}, "feasible": False, "budget_bytes": 2**31}, "No plan fits 2 GiB"),
        ({"techniques": {}, "feasible": True}, "fits as it is"),
        ({"techniques": {"micro_batch": 8}}, "micro_batch 8 at a time: written by hand"),
        (
            {
                **{"techniques": {"remat": 4}, "feasible": True, "budget_bytes": 2**33, "grade": "exact"},
                **{"predicted_slowdown": 0.11, "verified": "traced"},
            },
            "remat 4 segments: predicted to fit in 8 GiB, 11 % slower, same result to rounding; the planned step",
        ),
    ],
)
def test_a_plan_and_its_price_in_a_sentence(plan, says):
    assert says in plan_sentence(plan)
