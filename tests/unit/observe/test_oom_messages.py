"""Out-of-memory errors of every face: what is read from their texts, and how it is said."""

import json
from pathlib import Path

import pytest

import memfit
from memfit.errors import InputError
from memfit.hardware import devices
from memfit.hardware.out_of_memory import out_of_memory
from memfit.observe.oom import explain_oom
from memfit.observe.oom_message import guessed_layer, read_message
from memfit.report.oom import MOST_LINES, WIDTH
from memfit.units import GIB, MIB, size_literal

MESSAGES = Path(__file__).parent / "oom_messages"
TRAIN = ("/home/me/train.py", 18)


class ResourceExhaustedError(Exception):
    """As TensorFlow calls it."""


class NotFoundError(Exception):
    """The same."""


def text(face):
    return (MESSAGES / f"{face}.txt").read_text()


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """A GPU of 8 GiB that is nearly full, without TensorFlow."""
    readings = [devices.DeviceMemory("GPU:0", 7 * GIB, 8 * GIB - 10 * MIB, 8 * GIB)]
    monkeypatch.setattr(devices, "memory", lambda: tuple(readings))
    return readings


@pytest.mark.parametrize(
    ("face", "asked", "op_type", "layer", "where"),
    [
        ("graph", 64 * 62 * 62 * 32 * 4, "SquaredDifference", "norm", TRAIN),
        ("xla", int(231.90 * MIB), None, None, TRAIN),
        ("xla_bytes", 18874368000, None, None, TRAIN),
        ("eager", 64 * 62 * 62 * 32 * 4, "BiasAdd", None, None),
        ("op", 1000 * 1000 * 100 * 4, "Fill", None, None),
        ("no_algorithm", 16777216, "Conv2DBackpropInput", "second", TRAIN),
        ("cuda", 2 * GIB, "convolution", "second", None),
        ("constant", 784 * 256 * 4, "zeros", "sequential_dense_kernel_velocity", TRAIN),
        ("copied", None, "_EagerConst", None, None),
        ("allocator", 1179648, "Relu", "second", None),
        ("numpy", 160000 * 224 * 224 * 3, None, None, None),
        ("subclassed", 16 * 128 * 256 * 256 * 2, "Relu", "block", ("/home/me/models/unet.py", 41)),
    ],
)
def test_who_asked_for_how_much_where(face, asked, op_type, layer, where):
    request = read_message([text(face)])
    assert request.bytes == asked
    assert request.op_type == op_type
    assert (guessed_layer(request.op) if request.op else None) == layer
    assert request.called_at == where
    assert request.compiled == face.startswith("xla")


def test_what_the_texts_say_beyond_that():
    assert read_message([text("graph")]).shape == (64, 62, 62, 32)
    assert read_message([text("graph")]).op == "net_1/norm_1/moments/SquaredDifference"
    assert read_message([text("eager")]).layer_class == "Conv2D"
    assert read_message([text("subclassed")]).device == "GPU:1"
    assert read_message([text("subclassed")]).dtype == "half"
    assert read_message([text("copied")]).device == "GPU:0", "where the tensor goes, not where it comes from"
    assert read_message([text("numpy")]).shape == (160000, 224, 224, 3)


@pytest.mark.parametrize("face", sorted(path.stem for path in MESSAGES.glob("*.txt")))
def test_every_face_is_told_from_other_errors_and_explained_in_twenty_lines(face):
    kind = MemoryError if face == "numpy" else NotFoundError if face == "no_algorithm" else ResourceExhaustedError
    error = kind(text(face))
    assert out_of_memory(error)
    explained = explain_oom(error)
    lines = str(explained).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("Out of host memory" if face == "numpy" else "Out of memory")
    assert json.loads(json.dumps(explained.to_dict()))["asked_bytes"] == explained.asked_bytes
    assert "\x1b" not in str(explained) + explained.message


def test_a_graph_mode_error_in_words():
    shown = str(explain_oom(ResourceExhaustedError(text("graph"))))
    assert shown.splitlines()[0] == "Out of memory: norm asked for 30 MiB on GPU:0"
    assert "net_1/norm_1/moments/SquaredDifference, layer norm, forward pass" in shown
    assert "/home/me/train.py:18 (the line that was running)" in shown
    assert "7 GiB now, after the error, peak 7.99 GiB; limit 8 GiB" in shown
    assert 'memfit.plan(model, batch_size, budget="8GiB")' in shown


def test_an_operation_outside_a_step_is_not_to_be_planned():
    shown = " ".join(str(explain_oom(ResourceExhaustedError(text("eager")))).split())
    assert "to fit run this line on fewer samples at a time, or allow at least 8.02 GiB, which this" in shown
    assert "memfit.plan" not in shown


def test_a_backward_operation_is_said_to_be_one():
    explained = explain_oom(NotFoundError(text("no_algorithm")))
    assert (explained.layer, explained.part) == ("second", "backward")


def test_a_compiled_step_names_no_layer():
    explained = explain_oom(ResourceExhaustedError(text("xla")))
    assert explained.compiled
    assert explained.layer is None
    assert "the whole step, compiled by XLA" in str(explained)


def test_a_nested_cause_is_found():
    try:
        try:
            raise ResourceExhaustedError(text("graph"))
        except ResourceExhaustedError as inner:
            raise RuntimeError("the trial failed") from inner
    except RuntimeError as error:
        explained = explain_oom(error)
    assert explained.layer == "norm"
    assert explained.error == "ResourceExhaustedError"


def test_free_memory_in_pieces_is_told_from_too_little(device):
    assert explain_oom(ResourceExhaustedError(text("graph"))).fragmented is False
    device[:] = [devices.DeviceMemory("GPU:0", GIB, 7 * GIB, 8 * GIB)]
    explained = explain_oom(ResourceExhaustedError(text("graph")))
    assert explained.fragmented
    assert "1 GiB were free, but not in one piece" in " ".join(str(explained).split())


def test_the_device_the_error_names_is_shown(device):
    device.append(devices.DeviceMemory("GPU:1", 3 * GIB, 4 * GIB, 4 * GIB))
    explained = explain_oom(ResourceExhaustedError(text("subclassed")))
    assert (explained.device, explained.limit_bytes) == ("GPU:1", 4 * GIB)


def test_it_becomes_a_line_of_a_record():
    line = explain_oom(ResourceExhaustedError(text("graph"))).event(at=3.5, phase="train", epoch=1, step=7)
    assert (line.kind, line.at, line.step, line.layer) == ("out_of_memory", 3.5, 7, "norm")
    assert (line.asked_bytes, line.in_use_bytes) == (64 * 62 * 62 * 32 * 4, 8 * GIB - 10 * MIB)
    assert line.source == "/home/me/train.py:18"


def test_a_small_request_is_not_blamed():
    said = text("graph").replace("shape[64,62,62,32]", "shape[4]")
    assert "the memory was already full" in " ".join(str(explain_oom(ResourceExhaustedError(said))).split())
    assert "the memory was already full" not in str(explain_oom(ResourceExhaustedError(text("xla_bytes"))))


def test_host_memory_has_its_own_advice():
    explained = explain_oom(MemoryError(text("numpy")))
    assert explained.host
    assert "mmap_mode" in str(explained)
    assert str(explain_oom(MemoryError())).startswith("Out of host memory (MemoryError)")


def test_the_line_that_names_the_layer_is_found_in_the_users_file(tmp_path):
    script = tmp_path / "train.py"
    script.write_text('x = Input()\nx = BatchNormalization(\n    name="norm")(x)\nmodel.fit()\n')
    said = text("graph").replace("/home/me/train.py", str(script))
    explained = explain_oom(ResourceExhaustedError(said))
    assert explained.source == f"{script}:2"
    assert "train.py:2 (the line that makes the layer), called from" in " ".join(str(explained).split())
    script.write_text('a = Dense(name="norm")\nb = Dense(name="norm")\n')
    assert explain_oom(ResourceExhaustedError(said)).source is None, "two lines are none"
    script.write_text("this is (not Python\n")
    assert explain_oom(ResourceExhaustedError(said)).source is None


def test_what_cannot_be_found_is_unknown_and_nothing_else_is_raised(monkeypatch):
    def broken():
        raise RuntimeError("no device")

    monkeypatch.setattr(devices, "memory", broken)
    explained = explain_oom(ResourceExhaustedError("failed to allocate memory"))
    assert explained.to_dict()["limit_bytes"] is None
    assert str(explained).count("unknown") >= 3
    explained = explain_oom(ResourceExhaustedError(text("graph")), model=object(), batch_size=8, limit="1GiB")
    assert explained.plan is None
    assert "no plan" in str(explained)


@pytest.mark.parametrize(
    "error", [ValueError("shapes (2,3) and (4,) do not match"), KeyboardInterrupt(), KeyError("x")]
)
def test_other_errors_are_refused_with_a_sentence(error):
    with pytest.raises(InputError, match="not out-of-memory") as refused:
        memfit.explain_oom(error)
    assert "model.fit raised when memory ran out" in str(refused.value)


def test_what_is_no_error_is_refused():
    with pytest.raises(InputError, match="expected an error that was caught, got str"):
        explain_oom("OOM when allocating tensor")
    with pytest.raises(InputError, match="limit"):
        explain_oom(MemoryError(), limit="much")


def test_hostile_text_stays_short():
    said = "OOM when allocating tensor with shape[" + "9," * 5000 + "9] and type float on " + "x" * 9000 + "\n" * 900
    shown = str(explain_oom(ResourceExhaustedError(said)))
    assert len(shown.splitlines()) <= MOST_LINES
    assert max(map(len, shown.splitlines())) <= WIDTH


def test_names_move_no_cursor():
    shown = str(explain_oom(ResourceExhaustedError("Out of memory \x1b[2J of \u202ekind")))
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_budgets_are_written_as_they_are_read():
    assert [size_literal(size) for size in (4 * GIB, 1500 * MIB, 3 * MIB, 100)] == ["4GiB", "1500MiB", "3MiB", "100"]


def test_the_first_error_is_explained_where_its_recovery_failed():
    """Whether the recovery failed for want of memory too, or for another reason."""
    second = text("graph").replace("shape[64,62,62,32]", "shape[4]")
    for failure in (ResourceExhaustedError(second), ValueError("the retry is broken")):
        try:
            try:
                raise ResourceExhaustedError(text("graph"))
            except ResourceExhaustedError:
                raise failure from None
        except (ResourceExhaustedError, ValueError) as error:
            explained = explain_oom(error)
        assert explained.shape == (64, 62, 62, 32)
        assert explained.error == "ResourceExhaustedError"


def test_a_cause_that_is_not_memory_does_not_hide_one_that_is():
    error = RuntimeError("x")
    error.__cause__, error.__context__ = KeyError("y"), MemoryError("out of memory")
    assert out_of_memory(error) == "out of memory."
