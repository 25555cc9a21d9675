"""The record file: what is written is read, whatever happens to the process or to the file."""

import errno
import json
import os
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfit.errors import InputError
from memfit.observe.events import (
    End,
    Epoch,
    Finding,
    Fragmentation,
    Model,
    OutOfMemory,
    PeakTensor,
    Recovery,
    Retrace,
    Run,
    Steps,
    Timeline,
    TimelineOp,
)
from memfit.observe.record import latest_record, read_record
from memfit.observe.recording import Recording
from memfit.observe.writer import RecordWriter, record_path
from memfit.report.run_verdict import verdict

RUN = Run(started="2026-11-14T09:30:12+00:00", command=["train.py", "ä"], device="GPU:0", limit_bytes=2**33)
STEPS = Steps(at=1.5, phase="train", epoch=1, first=1, count=1, seconds=0.25, peak_bytes=2**30)
TIMELINE = Timeline(
    at=2.0,
    phase="train",
    step=4,
    seconds=0.5,
    base_bytes=100,
    peak_bytes=300,
    names=(TimelineOp("a/b/Relu", "Relu", "b", "forward"), TimelineOp("GatherV2", "GatherV2", None, "other")),
    points=((0, 300, 0, 200), (5, 100, 0, -200)),
    at_peak=(PeakTensor("a/b/Relu", "Relu", "b", "forward", "activations", 200, (2, 25), "float32"),),
)
EVENTS = [
    Model(at=0.1, model="net", batch_size=32, regime="xla", parameters=12, plan={"micro_batch": 4}),
    STEPS,
    Epoch(at=2.0, epoch=1, phase="train", steps=1, seconds=0.25, logs={"loss": 0.5}),
    Retrace(at=2.1, phase="train", step=1, function="train_function", reason="x changed", count=1),
    TIMELINE,
    Fragmentation(at=3, free_bytes=10, largest_free_bytes=5),
    OutOfMemory(at=4, phase="train", epoch=1, step=2, message="OOM when allocating", asked_bytes=7),
    Recovery(at=5, phase="train", what="in two slices", techniques={"micro_batch": 2}, seconds=1.5),
    Finding(at=6, id="a-leak", title="t", evidence="e", cause="c", fix="f", severity="problem"),
    End(at=7, outcome="failed", exit_code=1, error="ValueError: no"),
]


def write(path, events=EVENTS, run=RUN, **settings):
    writer = RecordWriter(path, run, **settings)
    for event in events:
        writer.write(event)
    writer.close()
    return path


def test_every_kind_is_read_as_it_was_written(tmp_path):
    record = read_record(write(tmp_path / "run.memfit.jsonl"))
    kinds = (
        record.models, record.steps, record.epochs, record.retraces, record.timelines, record.fragmentation,
        record.out_of_memory, record.recoveries, record.findings, (record.end,),
    )  # fmt: skip
    assert [event for kind in kinds for event in kind] == EVENTS
    assert (record.run, record.broken_lines, record.cut) == (RUN, 0, False)


def test_what_is_not_known_is_left_out_and_never_zero(tmp_path):
    path = write(tmp_path / "run.memfit.jsonl", [STEPS])
    line = json.loads(path.read_text().splitlines()[1])
    assert "in_use_bytes" not in line
    assert read_record(path).steps[0].in_use_bytes is None


def test_a_loss_that_is_not_a_number_is_valid_json(tmp_path):
    logs = {"loss": float("nan"), "other": float("inf"), "accuracy": 0.5}
    path = write(tmp_path / "run.memfit.jsonl", [Epoch(at=1, epoch=1, phase="train", steps=1, logs=logs)])

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    assert read_record(path).epochs[0].logs == {"loss": None, "other": None, "accuracy": 0.5}


def test_every_prefix_of_a_record_opens(tmp_path):
    data = write(tmp_path / "run.memfit.jsonl").read_bytes()
    cut = tmp_path / "cut.memfit.jsonl"
    seen = []
    for length in range(len(data) + 1):
        cut.write_bytes(data[:length])
        record = read_record(cut)
        assert record.broken_lines == 0
        assert record.cut == (length > 0 and data[length - 1 : length] != b"\n")
        seen.append(len(record.steps) + len(record.timelines))
    assert seen == sorted(seen), "a longer prefix never holds less"
    assert (seen[0], seen[-1]) == (0, 2)


texts = st.text(max_size=20)
sizes = st.none() | st.integers(0, 2**50)
seconds = st.floats(0, 1e6)
lines = st.one_of(
    st.builds(
        Steps, at=seconds, phase=st.sampled_from(["train", "validation", "predict"]), epoch=st.none() | st.integers(1),
        first=st.integers(1), count=st.integers(1), seconds=seconds, in_use_bytes=sizes, peak_bytes=sizes,
    ),
    st.builds(
        Retrace, at=seconds, phase=texts, step=st.integers(1), function=texts, reason=texts, count=st.integers(1)
    ),
    st.builds(Epoch, at=seconds, epoch=st.none(), phase=texts, steps=st.integers(0),
              logs=st.none() | st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False))),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(events=st.lists(lines, max_size=12), share=st.floats(0, 1), command=st.lists(texts))
def test_every_prefix_of_any_record_opens(tmp_path_factory, events, share, command):
    folder = tmp_path_factory.mktemp("records")
    data = write(folder / "run.memfit.jsonl", events, Run(command=command)).read_bytes()
    cut = folder / "cut.memfit.jsonl"
    cut.write_bytes(data[: int(share * len(data))])
    record = read_record(cut)
    assert record.broken_lines == 0
    assert list(record.steps) == [event for event in events if isinstance(event, Steps)][: len(record.steps)]
    whole = read_record(folder / "run.memfit.jsonl")
    assert [*whole.steps] == [event for event in events if isinstance(event, Steps)]


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(max_size=60))
def test_any_bytes_at_all_open_or_are_refused_in_a_sentence(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("records") / "junk.memfit.jsonl"
    path.write_bytes(junk)
    try:
        said = read_record(path).run
    except InputError as error:
        said = str(error)
    assert said == Run() or "is not a record of memfit" in said


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        '{"kind": "steps"',
        '{"kind": "steps", "at": 1}',
        '{"kind": "steps", "at": "soon", "phase": "train", "epoch": 1, "first": 1, "count": 1}',
        '{"kind": "steps", "at": 1, "phase": "train", "epoch": 1, "first": true, "count": 1}',
        '{"kind": "timeline", "at": 1, "phase": "train", "step": 1, "names": [7], "points": [], "at_peak": []}',
        '{"kind": "timeline", "at": 1, "phase": "train", "step": 1, "names": [], "points": [[1]], "at_peak": []}',
        '{"kind": ["steps"]}',
        "[1]",
        "null",
        "",
        "[" * 100_000,
    ],
)
def test_a_broken_line_in_the_middle_is_counted_and_skipped(tmp_path, line):
    path = write(tmp_path / "run.memfit.jsonl", [STEPS])
    path.write_text(path.read_text() + line + "\n" + json.dumps(STEPS.to_dict()) + "\n")
    record = read_record(path)
    assert (record.steps, record.broken_lines) == ((STEPS, STEPS), 1)


def test_kinds_and_fields_of_a_later_memfit_are_ignored(tmp_path):
    path = write(tmp_path / "run.memfit.jsonl", [])
    more = json.dumps({**STEPS.to_dict(), "color": "red"})
    path.write_text(path.read_text() + '{"kind": "weather", "at": 1}\n' + more + "\n")
    record = read_record(path)
    assert (record.steps, record.broken_lines) == ((STEPS,), 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n", "is not a record of memfit: it begins with b'hello'"),
        ('{"kind": "steps"}\n', "not with a `run` line"),
        ('{"kind": "run"}\n', "is not a record"),
        ('{"kind": "run", "memfit_record": 2, "memfit": "9.9"}\n', r"later memfit \(9\.9\).*schema is 2.*pip install"),
        ('{"kind": "run", "memfit_record": 1, "device": 7}\n', "damaged record: in its first line device is 7"),
        ("hello", "is not a record"),
    ],
)
def test_what_is_no_record_is_refused_with_what_it_is(tmp_path, content, message):
    path = tmp_path / "run.memfit.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_record(path)


def test_a_missing_record_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"there is no record .*nowhere.*memfit\.Recorder"):
        read_record(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_record(tmp_path)


def test_a_record_is_not_replaced_without_force(tmp_path):
    path = write(tmp_path / "run.memfit.jsonl", [STEPS])
    with pytest.raises(InputError, match=r"exists already.*force=True"):
        write(path)
    assert read_record(path).steps == (STEPS,)
    write(path, [], force=True)
    assert read_record(path).steps == ()


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        write(tmp_path / "nowhere" / "run.memfit.jsonl")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        write(tmp_path / "run.memfit.jsonl")


def test_a_device_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(InputError, match=r"cannot be written: Permission denied.*folder you may write to"):
        write(tmp_path / "run.memfit.jsonl")


@pytest.fixture
def full_disk(monkeypatch):
    """A disk that takes half a line more."""
    plain = os.write

    def fill():
        room = [40]

        def write(file, data):
            taken = min(room[0], len(data))
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            room[0] -= taken
            return plain(file, bytes(data[:taken]))

        monkeypatch.setattr(os, "write", write)

    return fill


def test_a_full_disk_leaves_the_last_complete_line(full_disk, tmp_path):
    path = tmp_path / "run.memfit.jsonl"
    recording = Recording(path, Run())
    recording.write(STEPS)
    full_disk()
    with pytest.warns(UserWarning, match="ends here: No space left on device"):
        recording.write(STEPS)
    recording.write(STEPS)
    recording.close()
    record = read_record(path)
    assert (record.steps, record.broken_lines, record.cut) == ((STEPS,), 0, False)


def test_a_disk_that_is_full_from_the_start_leaves_no_file(full_disk, tmp_path):
    full_disk()
    with pytest.warns(UserWarning, match="No space left on device"):
        recording = Recording(tmp_path / "run.memfit.jsonl", RUN)
    recording.write(STEPS)
    recording.close()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_no_error_where_warnings_are(full_disk, tmp_path, capsys):
    recording = Recording(tmp_path / "run.memfit.jsonl", Run())
    full_disk()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recording.write(STEPS)
    assert "The run continues without a record." in capsys.readouterr().err


def test_an_exit_that_follows_from_a_memory_error_is_not_acquitted(tmp_path):
    recording = Recording(tmp_path / "run.memfit.jsonl", Run())
    try:
        try:
            raise MemoryError("Unable to allocate 2 GiB")
        except MemoryError as error:
            recording.failed(error)
            raise SystemExit(1) from None
    except SystemExit as error:
        recording.close("failed", exit_code=1, error=error)
    record = read_record(recording.path)
    assert len(record.out_of_memory) == 1
    assert record.end.error is None
    assert verdict(record)["state"] == "out-of-memory"


def test_the_latest_record_of_a_folder(tmp_path):
    with pytest.raises(InputError, match=r"no record \(\*\.memfit\.jsonl\)"):
        latest_record(tmp_path)
    with pytest.raises(InputError, match="no record"):
        latest_record(tmp_path / "nowhere")
    older, newer = (write(tmp_path / f"{name}.memfit.jsonl") for name in ("z", "a"))
    os.utime(older, (time.time() - 60, time.time() - 60))
    assert latest_record(tmp_path) == newer


def test_names_are_of_the_process_and_never_taken_twice(tmp_path):
    first = record_path(tmp_path)
    assert first.name.startswith("run-2")
    assert first.name.endswith(f"-{os.getpid()}.memfit.jsonl")
    first.touch()
    assert record_path(tmp_path) != first
    assert record_path(tmp_path / "mine.jsonl") == tmp_path / "mine.jsonl"


def test_a_model_that_is_written_again_replaces_its_first_line(tmp_path):
    lines = [Model(at=1, model="net"), Model(at=2, model="other"), Model(at=3, model="net", batch_size=8)]
    assert read_record(write(tmp_path / "run.memfit.jsonl", lines)).models == (lines[2], lines[1])


def test_a_record_without_a_step_is_gone_on_with(tmp_path):
    path = tmp_path / "run.memfit.jsonl"
    Recording(path, Run())
    again = Recording(path, Run(), resume=True)
    assert again.began_at == 0
    again.close("failed", exit_code=1)
    assert read_record(path).end.outcome == "failed"
