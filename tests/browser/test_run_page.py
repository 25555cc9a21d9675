"""The page of a run, as somebody with a mouse, a phone or only a keyboard meets it."""

import json
import time
from itertools import pairwise

import pytest
from tests.browser.conftest import DESKTOP, PHONE
from tests.unit.records import HOSTILE, LIMIT, run_line, unet_record, write_record

from memfit.observe.record import read_record
from memfit.report.run_compare import compare
from memfit.report.run_page import comparison_page, run_page
from memfit.report.run_view import run_view
from memfit.units import GIB, MIB, format_size

# What has the focus, where it is, and whether that can be seen.
FOCUSED = """() => {
  const element = document.activeElement, ring = element.querySelector(":scope > .ring");
  const ink = getComputedStyle(document.body).color;
  return {
    what: element.getAttribute("aria-label") || element.textContent.trim().slice(0, 40) || element.tagName,
    top: element.getBoundingClientRect().top + scrollY,
    visible: getComputedStyle(element).outlineStyle !== "none" || getComputedStyle(ring).stroke === ink,
  };
}"""
BRIGHTNESS = """() => {
  const channels = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3).map(Number);
  return channels.reduce((sum, channel) => sum + channel) / 3;
}"""
# Texts whose contrast with what is behind them is below WCAG's 4.5.
HARD_TO_READ = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (color, below) => {
    for (const each of [`rgb(${below.join(" ")})`, color]) {
      canvas.fillStyle = each;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (channel) => (channel <= 0.03928 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
  const weights = [0.2126, 0.7152, 0.0722];
  const luminance = (color) => color.reduce((sum, channel, at) => sum + linear(channel / 255) * weights[at], 0);
  const ground = (element) => {
    const below = element.parentElement ? ground(element.parentElement) : [255, 255, 255];
    return over(getComputedStyle(element).backgroundColor, below);
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const bad = [];
  for (const element of document.querySelectorAll("body *:not(script):not(noscript):not(svg *)")) {
    if (!hasText(element) || !element.offsetParent || element.disabled) continue;
    const behind = ground(element), front = over(getComputedStyle(element).color, behind);
    const [high, low] = [luminance(front), luminance(behind)].sort((x, y) => y - x);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) bad.push([element.tagName, element.className, element.textContent.slice(0, 30), contrast]);
  }
  return bad;
}"""
RUN, STEP = "[data-run] svg[role=application]", "#step-chart svg[role=application]"


def shown_range(chart):
    return float(chart.get_attribute("data-from")), float(chart.get_attribute("data-to"))


def tip_of(page, host):
    return page.locator(f"{host} .tip").inner_text()


def sizes(page):
    return page.locator(".held tbody tr td:nth-child(4)").all_inner_texts()


def test_the_page_is_drawn(show_run):
    page = show_run(unet_record())
    assert page.locator(".figure .value").inner_text() == "7.85 GiB"
    for chart in (RUN, STEP):
        assert page.locator(f"{chart} path.peak").get_attribute("d").count("H") > 50
    assert page.locator(".mark.out_of_memory").count() == page.locator(".mark.recovery").count() == 1
    assert page.locator(f"{RUN} .limit-label").text_content() == "limit 8 GiB"
    assert page.locator(f"{STEP} .part-label").all_text_contents() == ["forward", "backward"]
    assert page.locator(".tree .tile").count() == 10
    assert page.locator(".held tbody tr").count() == 25


def test_dragging_zooms_and_a_double_click_shows_all(show_run):
    page = show_run(unet_record())
    chart = page.locator(RUN)
    chart.scroll_into_view_if_needed()
    all_of_it = shown_range(chart)
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 120, steps=4)
    assert page.locator(f"{RUN} .selection").count() == 1
    page.mouse.up()
    start, stop = shown_range(chart)
    width = box["width"] - 72 - 14
    assert stop - start == pytest.approx((all_of_it[1] - all_of_it[0]) * 200 / width, rel=0.02)
    page.mouse.dblclick(box["x"] + 500, box["y"] + 100)
    assert shown_range(chart) == all_of_it


def test_buttons_zoom_move_and_show_all(show_run):
    page = show_run(unet_record())
    chart = page.locator(RUN)
    panel = page.locator("[data-run]")
    start, stop = shown_range(chart)
    assert panel.get_by_role("button", name="Show all").is_disabled()
    panel.get_by_role("button", name="Zoom in").click()
    panel.get_by_role("button", name="Zoom in").click()
    closer = shown_range(chart)
    assert closer[1] - closer[0] == pytest.approx((stop - start) / 4)
    panel.get_by_role("button", name="Later").click()
    assert shown_range(chart)[0] > closer[0]
    panel.get_by_role("button", name="Show all").click()
    assert shown_range(chart) == (start, stop)


def test_hovering_names_the_step_and_the_operation(show_run):
    page = show_run(unet_record())
    page.locator(RUN).hover(position={"x": 300, "y": 100})
    assert "train step" in tip_of(page, "[data-run]")
    page.locator(STEP).hover(position={"x": 300, "y": 150})
    said = tip_of(page, "#step-chart")
    assert "unet/bottleneck/Conv2D" in said
    assert "forward: " in said


def test_the_keyboard_alone_reads_and_zooms_a_chart(show_run):
    page = show_run(unet_record())
    chart = page.locator(STEP)
    chart.focus()
    start, stop = shown_range(chart)
    page.keyboard.press("p")
    assert "5.55 GiB in use" in tip_of(page, "#step-chart")
    spoken = page.locator("#step-chart [aria-live]")
    assert "5.55 GiB in use" in spoken.inner_text()
    page.keyboard.press("ArrowRight")
    assert "frees" in spoken.inner_text()
    page.keyboard.press("+")
    closer = shown_range(chart)
    assert closer[1] - closer[0] == pytest.approx((stop - start) / 2)
    page.keyboard.press("Shift+ArrowRight")
    assert shown_range(chart)[0] > closer[0]
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("0")
    assert shown_range(chart) == (start, stop)


def test_a_keyboard_reaches_everything_in_the_order_of_the_page(show_run):
    page = show_run(unet_record())
    seen = []
    for _ in range(80):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
        if seen[-1]["what"].startswith("Retraces") and len(seen) > 20:
            break
    words = [each["what"] for each in seen]
    for wanted in (
        "Skip to the report", "Switch to dark", "Step time", "Zoom in", "Device memory over", "Bytes in use",
        "Filter by layer", "Kind", "Size", "Show all 42", "Predicted against", "What else was tried",
    ):  # fmt: skip
        assert any(word.startswith(wanted) for word in words), wanted
    assert all(each["visible"] for each in seen)
    sections = [each["top"] for each in seen[11:]]
    assert sum(later < earlier - 60 for earlier, later in pairwise(sections)) == 0


def test_the_treemap_is_one_stop_and_arrows_move_in_it(show_run):
    page = show_run(unet_record())
    first = page.locator(".tree .tile[tabindex='0']")
    assert first.count() == 1
    assert first.get_attribute("aria-label").startswith("segmentation_head: 764 MiB, activations 316 MiB, workspace")
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator(".tile[aria-pressed=true]").count() == 1
    assert set(page.locator(".held tbody td:first-child > bdi").all_inner_texts()) == {"down1_conv"}
    page.keyboard.press("Escape")
    assert page.locator(".held tbody tr").count() == 25


def test_the_table_sorts_by_each_column(show_run):
    page = show_run(unet_record())
    page.get_by_role("button", name="Show all 42").click()
    largest_first = sizes(page)
    head = page.get_by_role("button", name="Size")
    column = page.locator("th", has=head)
    assert column.get_attribute("aria-sort") == "descending"
    head.click()
    assert column.get_attribute("aria-sort") == "ascending"
    assert sizes(page) == largest_first[::-1]
    page.get_by_role("button", name="Layer and operation").click()
    names = page.locator(".held tbody td:first-child > bdi").all_inner_texts()
    assert names == sorted(names)
    assert column.get_attribute("aria-sort") == "none"


def test_the_table_is_filtered_by_text_and_kind(show_run):
    page = show_run(unet_record())
    page.get_by_label("Filter by layer, operation or shape").fill("BOTTLENECK")
    assert page.get_by_role("status").inner_text() == "4 of 42 tensors, 508 MiB"
    page.get_by_label("Kind").select_option("variables")
    assert page.get_by_role("status").inner_text() == "1 of 42 tensors, 12 MiB"
    page.get_by_label("Filter by layer, operation or shape").fill("nothing like it")
    assert page.get_by_role("status").inner_text() == "No tensor matches."


def test_another_profiled_step_can_be_chosen(show_run):
    page = show_run(unet_record())
    page.locator("#step").select_option("1")
    assert "train step 45" in page.locator(STEP).get_attribute("aria-label")
    assert page.locator("#step").input_value() == "1"


def test_the_same_chart_shows_step_times(show_run):
    page = show_run(unet_record())
    page.get_by_role("button", name="Step time").click()
    assert page.locator(f"{RUN} .peak-label").text_content() == "slowest 332 ms"
    assert page.get_by_role("button", name="Step time").get_attribute("aria-pressed") == "true"


def test_a_slow_leak_can_be_seen_without_the_zero(show_run):
    page = show_run(unet_record())
    first = page.locator(f"{RUN} path.peak").get_attribute("d")
    page.locator("[data-run]").get_by_label("from zero").uncheck()
    assert page.locator(f"{RUN} path.peak").get_attribute("d") != first


def test_dark_follows_the_system_and_can_be_switched(show_run):
    page = show_run(unet_record(), dark=True)
    assert page.evaluate(BRIGHTNESS) < 60
    page.get_by_role("button", name="Switch to light colours").click()
    assert page.evaluate(BRIGHTNESS) > 200
    page.get_by_role("button", name="Switch to dark colours").click()
    assert page.evaluate(BRIGHTNESS) < 60
    assert show_run(unet_record()).evaluate(BRIGHTNESS) > 200


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_on_its_ground(show_run, dark):
    """WCAG's contrast of 4.5 for every text on the page."""
    page = show_run(unet_record(), dark=dark)
    assert page.evaluate(HARD_TO_READ) == []


@pytest.mark.parametrize(
    "lines", [unet_record(), unet_record(hostile=True), [run_line()]], ids=["run", "hostile", "bare"]
)
@pytest.mark.parametrize("size", [PHONE, {"width": 320, "height": 600}, DESKTOP], ids=["phone", "small", "desktop"])
def test_the_page_never_scrolls_sideways(show_run, lines, size):
    page = show_run(lines, size=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_charts_follow_the_width_of_the_window(show_run):
    page = show_run(unet_record())
    wide = page.locator(RUN).bounding_box()["width"]
    page.set_viewport_size(PHONE)
    page.wait_for_function(f"document.querySelector('{RUN}').viewBox.baseVal.width < 400")
    assert page.locator(RUN).bounding_box()["width"] < wide
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_a_finger_drags_to_zoom(show_run):
    page = show_run(unet_record(), size=PHONE, has_touch=True, is_mobile=True)
    chart = page.locator(RUN)
    assert page.evaluate(f"getComputedStyle(document.querySelector('{RUN}')).touchAction") == "pan-y"
    chart.scroll_into_view_if_needed()
    page.locator("[data-run]").get_by_role("button", name="Zoom in").tap()
    start, stop = shown_range(chart)
    assert stop - start < 150


def test_hostile_names_stay_text(show_run):
    page = show_run(unet_record(hostile=True))
    page.get_by_role("button", name="Show all 66").click()
    names = page.locator(".held tbody td:first-child > bdi").all_inner_texts()
    for name in HOSTILE[:4]:
        assert name in names
    assert "right\\u202eto left\\u2066" in names
    assert page.locator("img, script:not([type]):not(:last-of-type)").count() == 0
    assert page.locator("script").count() == 2
    for _ in range(60):
        page.locator(STEP).press("ArrowRight")


def a_step(**changes):
    return {"kind": "steps", "at": 1.0, "phase": "train", "epoch": 1, "first": 1, "count": 1, **changes}


TENSOR = {"op": "o", "op_type": "O", "layer": None, "part": "other", "kind": "other", "bytes": 0}
PROFILED = {
    **{"kind": "timeline", "at": 1.0, "phase": "train", "step": 4, "seconds": None, "base_bytes": None},
    **{"peak_bytes": None, "names": [], "points": [], "at_peak": []},
}
ODD = {
    "one step without any number": [a_step()],
    "one step at the start": [a_step(at=0.0, peak_bytes=GIB)],
    "two steps at one moment": [a_step(peak_bytes=GIB), a_step(peak_bytes=0, in_use_bytes=0)],
    "times but no memory": [a_step(seconds=0.1), a_step(at=2.0, seconds=0.1)],
    "memory known only at times": [a_step(at=float(at), peak_bytes=GIB if at % 3 else None) for at in range(1, 30)],
    "an unknown phase": [a_step(phase="tuning", epoch=None, peak_bytes=GIB)],
    "out of memory at once": [{"kind": "out_of_memory", "at": 0.5, "phase": "train"}],
    "a profile of nothing": [a_step(peak_bytes=GIB), PROFILED],
    "a profile of one point": [PROFILED | {"points": [[0, 0, 5, 0]], "at_peak": [TENSOR]}],
    "a profile of tensors of no size": [PROFILED | {"points": [[3, 7, 0, 7]], "at_peak": [TENSOR, TENSOR]}],
}


@pytest.mark.parametrize("what", ODD)
def test_odd_records_are_shown(show_run, what):
    page = show_run([run_line(), *ODD[what]], size=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert "NaN" not in page.content().split('id="data"')[0]
    for chart in page.locator("svg[role=application]").all():
        chart.focus()
        for key in ("ArrowRight", "ArrowLeft", "End", "Home", "p", "+", "+", "Shift+ArrowLeft", "-", "0"):
            page.keyboard.press(key)


def test_without_a_profiled_step_the_prediction_is_shown_as_one(show_run):
    page = show_run(unet_record(timelines=0))
    assert "Predicted, because no step was profiled" in page.locator("#at-peak").inner_text()
    assert sizes(page) == ["512 MiB"]


def test_empty_sections_say_so(show_run):
    page = show_run([run_line(limit_bytes=None)])
    assert page.locator(".nothing").count() >= 7
    assert page.locator(".figure .value").inner_text() == "unknown"
    assert page.locator("svg[role=application]").count() == 0


def test_sizes_are_written_as_everywhere_in_memfit(show_run):
    """The page's own formatting against `memfit.units`, through the largest tensors."""
    lines = unet_record(timelines=1)
    (timeline,) = [line for line in lines if line["kind"] == "timeline"]
    values = [1, 1023, 1024, 1500, MIB - 1, MIB, 1023 * MIB + 700_000, GIB, int(5.87 * GIB), 15 * GIB, 150 * GIB, 2**40]
    one = timeline["at_peak"][0]
    timeline["at_peak"] = [{**one, "bytes": value} for value in sorted(values, reverse=True)]
    assert sizes(show_run(lines)) == [format_size(value) for value in sorted(values, reverse=True)]


def test_100_000_steps_open_fast_and_stay_small(show, tmp_path):
    lines = unet_record(steps=100_000, epochs=20, timelines=6, hostile=True)
    lines += [
        {**line, "at": 3e5 + line["at"], "first": 10**6 + line["first"]} for line in lines if line["kind"] == "steps"
    ]
    record = write_record(tmp_path / "long.memfit.jsonl", lines)
    html = run_page(run_view(read_record(record)))
    assert len(html.encode()) < 3_000_000
    started = time.monotonic()
    page = show(html)
    took = time.monotonic() - started
    assert took < 3
    chart = page.locator(RUN)
    chart.focus()
    started = time.monotonic()
    for key in "pp++++--0":
        page.keyboard.press(key)
    assert time.monotonic() - started < 3


def test_the_peak_of_a_long_run_is_still_there(show_run):
    lines = unet_record(steps=20_000, epochs=4)
    peaks = [line for line in lines if line["kind"] == "steps"]
    peaks[len(peaks) // 2]["peak_bytes"] = LIMIT - MIB
    page = show_run(lines)
    assert page.locator(f"{RUN} .peak-label").text_content() == f"peak {format_size(LIMIT - MIB)}"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_two_runs_are_drawn_to_the_same_scale(show, tmp_path, size):
    views = [
        run_view(read_record(write_record(tmp_path / f"{name}.memfit.jsonl", unet_record(step_seconds=seconds))))
        for name, seconds in (("a", 0.31), ("b", 0.2))
    ]
    page = show(comparison_page(json.loads(json.dumps(compare(*views))), views), size=size)
    assert page.locator(RUN).count() == 2
    labels = [page.locator(RUN).nth(at).locator("text").all_text_contents() for at in range(2)]
    assert [label for label in labels[0] if "GiB" in label] == [label for label in labels[1] if "GiB" in label]
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
