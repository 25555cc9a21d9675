"""Records stay small, and nothing is lost by that but resolution."""

import os
import warnings
from itertools import pairwise

import pytest

from memfit.observe.events import Epoch, Retrace, Run
from memfit.observe.growth import Doubling, StepBlocks
from memfit.observe.record import read_record
from memfit.observe.recording import Recording, resident_bytes
from memfit.units import MIB


@pytest.fixture
def recording(tmp_path):
    recording = Recording(tmp_path / "run.memfit.jsonl", Run())
    yield recording
    recording.close("finished")


def lines(recording):
    return recording.path.read_bytes().count(b"\n")


def train(recording, steps, *, executed=1):
    for number in range(steps // executed):
        recording.step("train", executed, 0.5 * executed, 100 + number % 7, 200 + number % 11, when=number)


def test_a_hundred_thousand_steps_make_some_four_thousand_lines(recording):
    recording.begin("train")
    train(recording, 100_000)
    recording.finish("train")
    steps = read_record(recording.path).steps
    assert 3_500 < len(steps) < 4_500
    assert recording.path.stat().st_size < MIB
    assert [line.count for line in steps[:512]] == [1] * 512
    assert [line.count for line in steps[512:1024]] == [2] * 512
    assert sum(line.count for line in steps) == 100_000
    assert all(after.first == before.first + before.count for before, after in pairwise(steps))


def test_a_line_holds_the_extremes_of_its_steps():
    blocks = StepBlocks("train")
    for in_use, peak, seconds in ((50, 90, 0.1), (10, 300, 0.5), (30, 20, 0.3)):
        blocks.add(1, seconds, in_use, peak)
    line = blocks.line(1.0, 2, 7)
    assert (line.in_use_bytes, line.least_in_use_bytes, line.peak_bytes) == (30, 10, 300)
    assert (line.seconds, line.slowest_seconds) == (0.3, 0.5)
    assert (line.first, line.count, line.epoch, line.host_bytes) == (1, 3, 2, 7)
    assert blocks.line(1.0, 2, 7) is None


def test_an_allocator_that_does_not_count_leaves_the_bytes_unknown():
    blocks = StepBlocks("train")
    blocks.add(1, 0.1, None, None)
    line = blocks.line(1.0, 1, None)
    assert (line.in_use_bytes, line.least_in_use_bytes, line.peak_bytes) == (None, None, None)


def test_executions_of_several_steps_are_counted_as_steps(recording):
    train(recording, 12, executed=4)
    recording.close("finished")
    steps = read_record(recording.path).steps
    assert [(line.first, line.count, line.seconds) for line in steps] == [(1, 4, 0.5), (5, 4, 0.5), (9, 4, 0.5)]


@pytest.mark.parametrize("phase", ["train", "predict"])
def test_a_hundred_thousand_calls_of_one_step_do_not_grow_it_either(recording, phase):
    for number in range(100_000):
        recording.begin(phase)
        recording.step(phase, 1, 0.1, 1, 2, when=number)
        recording.epoch_done(phase, 1, 0.1, 2, None)
        recording.finish(phase)
    assert lines(recording) < 15_000
    recording.close("finished")
    assert sum(line.count for line in read_record(recording.path).steps) == 100_000


def test_many_epochs_and_retraces_are_thinned_and_the_last_is_there(recording):
    for number in range(1, 10_001):
        recording.write(Epoch(at=number, epoch=number, phase="train", steps=1))
        recording.write(Retrace(number, "train", number, "train_function", "x", number))
    recording.close("finished")
    record = read_record(recording.path)
    assert len(record.epochs) < 3_000
    assert len(record.retraces) < 3_000
    assert record.epochs[-1].epoch == record.retraces[-1].count == 10_000
    assert record.end.outcome == "finished"


def test_doubling_says_when():
    doubling = Doubling(lines=2)
    assert [number for number in range(1, 25) if doubling.due()] == [1, 2, 4, 6, 10, 14, 22]


def test_how_it_ended(tmp_path):
    def end(name, *arguments, **settings):
        recording = Recording(tmp_path / name, Run())
        recording.begin("train")
        recording.close(*arguments, **settings)
        recording.close("finished")
        return read_record(tmp_path / name).end

    assert end("a", "finished", exit_code=0).exit_code == 0
    assert end("b", error=ValueError("not\nthis")).error == "ValueError: not this"
    assert end("c", error=KeyboardInterrupt()).outcome == "interrupted"
    assert end("d").outcome == "failed", "the fit never ended"


def test_a_full_disk_ends_the_recording_and_not_the_training(recording, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(UserWarning, match="ends here: No space left on device"):
        train(recording, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(recording, 10)
    assert recording.closed


def test_a_forked_process_writes_nothing(recording, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    train(recording, 3)
    recording.close("finished")
    assert lines(recording) == 1


def test_the_resident_set_is_that_of_this_process():
    before = resident_bytes()
    kept = bytearray(64 * MIB)
    assert resident_bytes() - before > 48 * MIB
    del kept
