import pytest
from rich.console import Console
from tests.unit.records import run_line, unet_record, write_record

from memfit.observe.record import read_record
from memfit.report.run_compare import compare
from memfit.report.run_compare_terminal import render_comparison
from memfit.report.run_terminal import render_run
from memfit.report.run_view import run_view

BARE = [run_line(limit_bytes=None), {"kind": "end", "at": 1.0, "outcome": "finished"}]


@pytest.fixture
def view_of(tmp_path):
    return lambda lines: run_view(read_record(write_record(tmp_path / "run.memfit.jsonl", lines)))


def text_of(renderable):
    console = Console(width=80, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def one_line(text):
    return " ".join(text.split())


@pytest.mark.parametrize("lines", [unet_record(), unet_record(hostile=True), unet_record(steps=5000, epochs=50), BARE])
def test_it_fits_80_columns_and_has_no_controls(view_of, lines):
    text = text_of(render_run(view_of(lines)))
    assert max(map(len, text.splitlines())) <= 80
    assert all(line.replace("\u202f", "").isprintable() for line in text.splitlines())


def test_the_headline_comes_first(view_of):
    text = one_line(text_of(render_run(view_of(unet_record()))))
    assert text.startswith("peak 7.85 GiB of 8 GiB (98 %): Finished. It ran out of memory once and recovered")


@pytest.mark.parametrize(
    "says",
    [
        "warning The training step was traced 3 times", "dataset = dataset.batch(16, drop_remainder=True)",
        "train step 151: out of memory in up1_conv (asked for 512 MiB, 7.74 GiB in use)",
        "recovered, the same batch again in 2 slices of 8 (now micro_batch 8 at a time, remat 4 segments; it took 6 s)",
        "down1_conv 652 MiB 11 % activations", "steady peak, planned 7.2 GiB 6.9 GiB 7.5 GiB 7.35 GiB -2.0 %",
        "11 % slower", "4 validation 4.65 s 7.2 GiB val_loss 0.225, val_accuracy 0.9",
    ],
)  # fmt: skip
def test_it_says(view_of, says):
    assert says in one_line(text_of(render_run(view_of(unet_record()))))


def test_names_are_not_taken_for_markup(view_of):
    assert "[bold]markup[/bold]" in one_line(text_of(render_run(view_of(unet_record(hostile=True)))))


def test_the_run_is_drawn_as_blocks(view_of):
    text = text_of(render_run(view_of(unet_record())))
    (drawn,) = [line for line in text.splitlines() if "0 to 8 GiB" in line]
    assert drawn.startswith("█▇")
    assert drawn.count("▃") == 4  # validation, at the end of each epoch


def test_nothing_to_show_is_said(view_of):
    text = one_line(text_of(render_run(view_of(BARE))))
    assert text.startswith("peak unknown: Finished. The peak is unknown")
    assert 'memfit.plan(model, batch_size, budget="8GiB")' in text


def test_two_runs_stand_side_by_side(view_of):
    a, b = view_of(unet_record()), view_of(unet_record(out_of_memory=False, step_seconds=0.155))
    text = text_of(render_comparison(compare(a, b)))
    assert max(map(len, text.splitlines())) <= 80
    assert "train step time 317 ms 158 ms -50 %" in one_line(text)
    assert "out of memory 1 0 -1" in one_line(text)
