import json
import re
from html.parser import HTMLParser

import pytest
from tests.unit.records import HOSTILE, run_line, timeline_line, unet_record, write_record

from memfit.observe.record import read_record
from memfit.report.run_compare import compare
from memfit.report.run_page import comparison_page, json_in_html, run_page
from memfit.report.run_view import run_view

VOID = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """Tags with their attributes and texts, refusing any that is closed out of turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def view_of(tmp_path):
    return lambda lines: run_view(read_record(write_record(tmp_path / "run.memfit.jsonl", lines)))


@pytest.fixture
def page_of(view_of):
    return lambda lines: run_page(view_of(lines))


@pytest.mark.parametrize("hostile", [False, True])
def test_the_page_is_well_formed_and_loads_nothing(page_of, hostile):
    text = page_of(unet_record(hostile=hostile))
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"img", "iframe", "object", "embed", "base", "form"}
    assert len(page.all("script")) == 2
    assert all(set(attributes) <= {"type", "id"} for attributes in page.all("script"))
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert all(link["href"].startswith("#") for link in page.all("a"))
    # Without these no page of ours could be asked to run what a name brings along.
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]


def test_the_policy_allows_only_what_memfit_wrote(page_of):
    (policy,) = [meta["content"] for meta in Page(page_of(unet_record())).all("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'")
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy


def test_hostile_names_are_text_and_their_controls_are_shown(page_of):
    text = page_of(unet_record(hostile=True))
    page = Page(text)
    said = " ".join(page.texts)
    assert "\\u001b[2Jcleared" in said
    assert not re.search("[\u2028-\u202e\u2066-\u2069\x1b]", text)
    data = json.loads(page.texts[page.texts.index(next(each for each in page.texts if each.startswith('{"runs"')))])
    assert set(HOSTILE) <= {operation[2] for operation in data["operations"]}


@pytest.mark.parametrize("name", HOSTILE)
def test_json_cannot_leave_its_script(name):
    text = str(json_in_html({name: [name]}))
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {name: [name]}


def test_a_lone_half_of_a_character_can_be_written(page_of):
    lines = unet_record()
    lines[1]["model"] = "half \ud83d"
    assert "half \\ud83d" in page_of(lines)


def test_the_largest_record_gives_a_page_below_3_mb(page_of):
    lines = unet_record(steps=100_000, epochs=500)
    one = timeline_line([f"layer{at}" for at in range(8)], step=1, at=1.0)
    names = [one["names"][0] | {"op": f"{at}/{'part_of_a_name/' * 10}", "layer": f"layer{at}"} for at in range(4000)]
    points = [[at * 10, 10**9 + at % 977 * 10**6, at, 10**6] for at in range(4000)]
    held = [one["at_peak"][0] | {"op": names[at]["op"], "layer": f"layer{at}"} for at in range(4000)]
    for number in range(6):
        named = [name | {"op": f"{number}/{name['op']}"} for name in names]
        lines.append({**one, "step": number, "at": float(number), "names": named, "points": points, "at_peak": held})
    page = page_of(lines)
    assert 1_000_000 < len(page.encode()) < 3_000_000


def test_a_name_without_end_is_clipped(page_of):
    line = timeline_line(["a", "b", "x" * 1_000_000], step=1, at=1.0)
    assert len(page_of([run_line(), line])) < 200_000


def test_tables_say_what_their_headers_head(page_of):
    page = Page(page_of(unet_record()))
    assert page.all("th")
    assert all(attributes.get("scope") in ("col", "row") for attributes in page.all("th"))


@pytest.mark.parametrize(
    "says",
    [
        "7.85 GiB", "peak, of a limit of 8 GiB (98 %)", "Finished. It ran out of memory once and recovered",
        "drop_remainder=True", "out of memory in", "train.py:57", "steady peak, planned", "7.35 GiB", "11 % slower",
        "What else was tried (2)", "float32[7,256,256,3]", "How to read this page", "31\u202f031\u202f745",
    ],
)  # fmt: skip
def test_the_page_says(page_of, says):
    assert says in " ".join(" ".join(Page(page_of(unet_record())).texts).split(" "))


def test_sections_without_content_say_what_to_do(page_of):
    said = " ".join(Page(page_of([run_line(), {"kind": "end", "at": 1.0, "outcome": "finished"}])).texts)
    for words in (
        "Nothing was found that is worth changing.", "No step was recorded", "No step of this run was profiled",
        "Unknown: no step was profiled", "This run has no prediction",
        'memfit.plan(model, batch_size, budget="8GiB")', "No epoch was over", "no step was traced a second time",
    ):  # fmt: skip
        assert words in said


def test_logs_stand_in_columns_and_many_of_them_in_a_line(page_of):
    few = unet_record()
    assert "<bdi>accuracy</bdi></th>" in page_of(few)
    many = [
        {**line, "logs": {f"metric{at}": at for at in range(20)}} if line["kind"] == "epoch" else line for line in few
    ]
    assert "<bdi>metric19</bdi> 19" in page_of(many)


def test_two_runs_stand_side_by_side(view_of):
    views = [view_of(unet_record()), view_of(unet_record(out_of_memory=False, step_seconds=0.155))]
    text = comparison_page(compare(*views), views)
    said = " ".join(Page(text).texts)
    assert "the same peak, 50 % faster (317 ms to 158 ms a step)" in said
    assert "val_accuracy" in said
    assert text.count("data-run=") == 2
