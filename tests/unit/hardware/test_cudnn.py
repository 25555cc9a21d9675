import json

import pytest

from memfit.hardware import cudnn
from memfit.hardware.catalog import find_gpu
from memfit.hardware.cudnn import Kernel, Problem, description, kernels

H200 = find_gpu("H200")
FORWARD = Problem(
    kind="forward",
    dtype="f32",
    image=(8, 64, 56, 56),
    filter=(64, 64, 3, 3),
    output=(8, 64, 56, 56),
    strides=(1, 1),
    padding=(1, 1),
    dilations=(1, 1),
    channels_last=True,
)


@pytest.fixture(autouse=True)
def _asks_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(cudnn, "_ANSWERS", {})
    monkeypatch.setenv("MEMFIT_CACHE", str(tmp_path))


@pytest.fixture
def asked(monkeypatch):
    """Stands in for the child process; collects what it is asked."""
    requests = []

    def answer(request):
        requests.append(request)
        return json.dumps([[[67, 131], [46, 12992528]] for _ in request["problems"]]).encode()

    monkeypatch.setattr(cudnn, "_library", lambda: "libcudnn.so.9")
    monkeypatch.setattr(cudnn, "_ask", answer)
    return requests


def test_a_card_is_described_as_cudnn_describes_it():
    # What cuDNN 9.19 wrote for an H200.
    card = json.loads(description(H200))
    assert (card["multiProcessorCount"], card["deviceVer"], card["maxSharedMemoryPerBlockOptin"]) == (132, 900, 232448)
    assert json.loads(description(find_gpu("RTX 3060")))["deviceVer"] == 860


def test_each_convolution_is_asked_for_once(asked):
    first = kernels([FORWARD, FORWARD], H200)
    assert first[FORWARD][:2] == (Kernel(67, 131), Kernel(46, 12992528))
    assert kernels([FORWARD], H200) == first
    assert len(asked) == 1
    assert len(asked[0]["problems"]) == 1


def test_kernels_that_a_described_card_lacks_are_added(asked):
    assert asked == []
    assert kernels([FORWARD], H200)[FORWARD][-1].engine == 3
    assert kernels([FORWARD], H200, on_card=True)[FORWARD] == (Kernel(67, 131), Kernel(46, 12992528))


def test_a_child_that_fails_leaves_no_answer_and_is_not_remembered_on_disk(monkeypatch, tmp_path):
    def fail(request):
        raise cudnn._UnansweredError

    monkeypatch.setattr(cudnn, "_library", lambda: "libcudnn.so.9")
    monkeypatch.setattr(cudnn, "_ask", fail)
    assert kernels([FORWARD], H200) == {}
    assert not list(tmp_path.iterdir())


def test_without_cudnn_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(cudnn, "_library", lambda: None)
    assert kernels([FORWARD], H200) == {}


def test_cudnn_too_old_to_be_asked_is_left_alone(monkeypatch):
    monkeypatch.setattr(cudnn, "cudnn_version", lambda: (9, 3, 0, 75))
    assert cudnn._library() is None
