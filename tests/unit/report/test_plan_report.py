from dataclasses import replace
from html.parser import HTMLParser

import pytest

from memfit.estimation.phases import Peak
from memfit.planning.plan import Plan
from memfit.planning.prediction import Contribution, Prediction, Rejected
from memfit.planning.sweep import Sweep, SweepPoint
from memfit.units import GIB, MIB, parse_size

SEGMENTS = ("conv1_pad..conv2_block1_out", *(f"block{at}_in..block{at}_out" for at in range(4)))
TRIED = (
    Rejected("remat alone", "does not fit", int(8.6 * GIB), 0.31),
    Rejected("jit on", "XLA could not be asked", None, None),
)
EXACT = Prediction(
    feasible=True,
    model_name="resnet50",
    batch_size=64,
    budget=8 * GIB,
    numerics="exact",
    gpu="GeForce RTX 3070",
    regime="graph",
    plain_peak=Peak(int(10.8 * GIB), int(10.4 * GIB), int(11.3 * GIB)),
    margin=0.05,
    peak=Peak(int(7.4 * GIB), int(7.1 * GIB), int(7.6 * GIB)),
    slowdown=0.12,
    grade="exact",
    parts=(
        Contribution("remat", "recomputed in the backward pass", "exact", int(8.9 * GIB), 0.08),
        Contribution("micro_batch", "every layer treats samples independently", "exact", int(7.4 * GIB), 0.12),
    ),
    rejected=TRIED,
    verified="traced",
)
FEASIBLE = Plan(remat=SEGMENTS, micro_batch=32, prediction=EXACT)
INFEASIBLE = Plan(
    prediction=replace(
        EXACT,
        feasible=False,
        budget=2 * GIB,
        peak=None,
        slowdown=None,
        grade=None,
        parts=(),
        smallest_budgets={"exact": int(5.127 * GIB), "close": int(3.25 * GIB)},
        largest_batch=24,
        verified=None,
    )
)
SWEEP = Sweep(
    model_name="resnet<50>",
    batch_size=64,
    gpu="GeForce RTX 3070",
    regime="graph",
    plain_peak=int(10.8 * GIB),
    points=(
        SweepPoint(int(6.127 * GIB), int(5.8 * GIB), -0.31, "close", {"precision": "mixed_float16"}),
        SweepPoint(int(4.1 * GIB), int(3.9 * GIB), 0.05, "close", {"precision": "mixed_float16", "micro_batch": 32}),
        SweepPoint(int(2.1 * GIB), 2 * GIB, 0.65, "exact", {"remat": SEGMENTS, "micro_batch": 8}),
    ),
)


class Page(HTMLParser):
    """Tags in order, refusing any that is closed out of turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def line_with(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_the_headline_answers_whether_it_fits_and_what_it_costs():
    headline = str(FEASIBLE).splitlines()[0]
    assert headline == "resnet50, batch 64, in 8 GiB on GeForce RTX 3070: fits, 12 % slower, same result to rounding"


@pytest.mark.parametrize(
    ("slowdown", "grade", "says"),
    [
        (-0.31, "close", "fits, 31 % faster, close result"),
        (0.002, "any", "fits, as fast, another training"),
        (None, "exact", "fits, step time unknown, same result to rounding"),
    ],
)
def test_the_headline_of_other_plans(slowdown, grade, says):
    plan = replace(FEASIBLE, prediction=replace(EXACT, slowdown=slowdown, grade=grade))
    assert str(plan).splitlines()[0].endswith(says)


def test_the_peak_is_shown_with_its_band_and_what_is_kept_free():
    text = str(FEASIBLE)
    assert line_with(text, "planned peak").split("  ") == [
        *("planned peak", " 7.4 GiB", " 7.1 GiB", " 7.6 GiB", "in 8 GiB, 5 % of it kept free")
    ]
    assert "10.8 GiB" in line_with(text, "plain peak")


def test_each_technique_has_its_value_reason_peak_and_time():
    lines = str(FEASIBLE).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("+ micro_batch 32 at a time"))
    assert lines[at].split()[-4:] == ["7.4", "GiB", "+12", "%"]
    assert lines[at + 1].strip() == "every layer treats samples independently"


def test_a_long_list_of_segments_is_shortened():
    text = str(FEASIBLE)
    assert "5 segments: conv1_pad..conv2_block1_out, …" in line_with(text, "+ remat")
    assert "block3_in" not in text


def test_a_technique_nothing_is_predicted_of_is_unknown():
    row = line_with(str(replace(FEASIBLE, jit=True)), "+ jit on")
    assert row.split()[-2:] == ["unknown", "unknown"]


def test_a_peak_without_a_band_has_an_unknown_band():
    plan = replace(FEASIBLE, prediction=replace(EXACT, peak=Peak(7 * GIB, 7 * GIB, 7 * GIB)))
    assert line_with(str(plan), "planned peak").split()[2:6] == ["7", "GiB", "unknown", "unknown"]


def test_what_was_tried_says_why_not_and_unknown_is_not_zero():
    text = str(FEASIBLE)
    assert line_with(text, "remat alone").split()[-4:] == ["8.6", "GiB", "+31", "%"]
    assert line_with(text, "jit on").split()[-2:] == ["unknown", "unknown"]


def test_only_the_first_of_many_rejected_are_shown():
    many = tuple(Rejected(f"way {at}", "slower", GIB, 0.5) for at in range(20))
    text = str(replace(FEASIBLE, prediction=replace(EXACT, rejected=many)))
    assert "and 14 more" in text
    assert len(text.splitlines()) <= 25


@pytest.mark.parametrize(
    ("verified", "says"),
    [("traced", "was traced, not run"), ("measured", "was really run"), (None, "neither traced nor run")],
)
def test_it_says_how_it_was_verified_and_what_is_next(verified, says):
    text = str(replace(FEASIBLE, prediction=replace(EXACT, verified=verified)))
    assert says in line_with(text, "verified")
    assert text.endswith("memfit.fit(model, ..., plan=plan)")


def test_grades_are_shown_where_not_all_is_exact():
    close = Contribution("precision", "halves activations", "close", 5 * GIB, -0.3)
    prediction = replace(EXACT, grade="close", parts=(close, *EXACT.parts))
    text = str(Plan(precision="mixed_float16", remat=SEGMENTS, micro_batch=32, prediction=prediction))
    assert line_with(text, "+ precision").endswith("close")
    assert line_with(text, "+ micro_batch").endswith("exact")
    assert "grade" not in str(FEASIBLE)


def test_a_model_that_fits_as_it_is_needs_no_next_step():
    text = str(Plan(prediction=replace(EXACT, parts=(), rejected=(), slowdown=0.0)))
    assert text.splitlines()[0].endswith(": fits as it is")
    assert "memfit.fit" not in text


def test_what_does_not_fit_says_what_would():
    text = str(INFEASIBLE)
    assert text.splitlines()[0].endswith("in 2 GiB on GeForce RTX 3070: does not fit with the same result to rounding")
    assert line_with(text, "with a budget of 5.13 GiB").endswith("same result to rounding")
    assert line_with(text, "with a budget of 3.25 GiB").endswith('close result (numerics "close")')
    assert line_with(text, "in 2 GiB").endswith("largest batch: 24")
    assert "another training" not in text  # that grade was not looked at
    assert "remat alone" in text
    assert "memfit.fit" not in text


def test_an_unknown_largest_batch_is_said_to_be_unknown():
    text = str(Plan(prediction=replace(INFEASIBLE.prediction, largest_batch=None)))
    assert "largest batch: unknown" in text


@pytest.mark.parametrize("size", [GIB + 1, 5 * GIB + 7 * MIB, 999 * MIB + 1, 17 * GIB // 3, 1023 * MIB + 5])
def test_a_smallest_budget_still_does_when_it_is_typed(size):
    text = str(Plan(prediction=replace(INFEASIBLE.prediction, smallest_budgets={"exact": size})))
    typed = line_with(text, "with a budget of").removeprefix("with a budget of ").partition("  ")[0]
    assert size <= parse_size(typed) <= 1.01 * size


def test_a_plan_by_hand_is_its_techniques():
    text = str(Plan(micro_batch=16, remat=("dense",), jit=False))
    assert "by hand" in text
    assert line_with(text, "micro_batch").endswith("16 at a time")
    assert line_with(text, "remat").endswith("1 layer: dense")
    assert line_with(text, "jit").endswith("off")
    assert "unknown" not in text


def test_an_empty_plan_says_so():
    assert str(Plan()) == "an empty plan: nothing is changed"


@pytest.mark.parametrize("shown", [FEASIBLE, INFEASIBLE, SWEEP, Plan(remat=("a" * 90 + ".." + "b" * 90,) * 3)])
def test_nothing_is_wider_than_100_columns(shown):
    assert max(map(len, str(shown).splitlines())) <= 100


def test_names_are_not_taken_for_markup():
    plan = Plan(remat=("[bold]..[/x]",), prediction=replace(EXACT, rejected=(Rejected("[red]", "[/no]"),)))
    assert "1 segment: [bold]..[/x]" in str(plan)
    assert "[red]" in str(plan)


@pytest.mark.parametrize("shown", [FEASIBLE, INFEASIBLE, SWEEP, replace(SWEEP, points=()), Plan(jit=True), Plan()])
def test_html_is_well_formed_and_self_contained(shown):
    page = Page(shown._repr_html_())
    assert not {"script", "link", "img", "iframe"} & set(page.tags)


def test_html_escapes_names():
    prediction = replace(EXACT, gpu="<b>card", rejected=(Rejected("<i>what", "a & b"),))
    html = Plan(remat=("<layer>..x",), prediction=prediction)._repr_html_()
    for said in ("&lt;b&gt;card", "&lt;i&gt;what", "a &amp; b", "&lt;layer&gt;"):
        assert said in html
    assert "resnet&lt;50&gt;" in SWEEP._repr_html_()


def test_a_sweep_lists_every_way_with_its_price():
    text = str(SWEEP)
    assert text.splitlines()[0] == "resnet<50>, batch 64, on GeForce RTX 3070: plain peak 10.8 GiB (graph)"
    row = line_with(text, "6.13 GiB")
    assert "-31 %" in row
    assert row.endswith("close result             precision mixed_float16")
    assert "remat 5 segments, micro_batch 8 at a time" in text


def test_a_sweep_without_points_says_so():
    assert "No way to train it was found." in str(replace(SWEEP, points=()))


def test_the_drawing_has_a_titled_dot_for_each_point():
    html = SWEEP._repr_html_()
    tags = Page(html).tags
    assert tags.count("svg") == 1
    assert tags.count("circle") == tags.count("title") == len(SWEEP.points)
    assert "<title>6.13 GiB, -31 %, close result: precision mixed_float16</title>" in html


def test_a_single_point_can_be_drawn():
    assert "<circle" in replace(SWEEP, points=SWEEP.points[:1])._repr_html_()
