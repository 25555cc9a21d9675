import pytest

from memfit.estimation import trials
from memfit.estimation.lifetimes import lifetimes
from memfit.estimation.trials import Trials
from memfit.estimation.workspace import Trial
from memfit.hardware import scratch
from memfit.hardware.catalog import find_gpu
from memfit.hardware.cudnn import Kernel
from memfit.units import GIB, MIB

H200 = find_gpu("H200")
RED_ZONES = 16 * MIB


@pytest.fixture
def step(builder):
    """Two convolutions of the same shapes, one after the other."""
    image, filters = ((1, 0), (0, 64), (0, 56), (0, 56)), ((0, 3), (0, 3), (0, 64), (0, 64))
    attributes = {"data_format": "NCHW", "strides": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "padding": "SAME"}
    x = builder.op("IteratorGetNext", shape=image)
    for _ in range(2):
        weights = builder.op("ReadVariableOp", shape=filters)
        x = builder.op("Conv2D", x, weights, shape=image, **attributes)
    return builder.build()


@pytest.fixture
def asked(monkeypatch):
    """What cuDNN is asked; it offers three kernels, one of them with Fourier transforms."""
    batches = []

    def offered(problems, gpu, *, on_card):
        batches.append(problems[0].image[0])
        return {problem: (Kernel(67, 50 * MIB), Kernel(28, 0), Kernel(3, 200 * MIB)) for problem in problems}

    monkeypatch.setattr(trials, "kernels", offered)
    monkeypatch.setattr(trials, "is_here", lambda gpu: False)
    return batches


def _convolutions(step):
    return [index for index, op in enumerate(step.ops) if op.type == "Conv2D"]


def test_kernels_are_tried_in_turn_beside_a_copy_of_the_output(step, asked):
    first = _convolutions(step)[0]
    found = Trials(H200, lambda *_: 7 * MIB).of_one_run()(step, first, 32)
    output = 32 * 64 * 56 * 56 * 4
    assert found == Trial(output + RED_ZONES, (50 * MIB + RED_ZONES, 200 * MIB + RED_ZONES), 7 * MIB)
    assert asked == [32]


def test_the_same_convolution_is_timed_once_in_a_run(step, asked):
    tried = Trials(H200, lambda *_: 7 * MIB)
    for _ in range(2):
        run = tried.of_one_run()
        first, second = (run(step, index, 32) for index in _convolutions(step))
        assert isinstance(first, Trial)
        assert second == 7 * MIB
    assert asked == [32]


def test_kernels_above_the_cap_and_fourier_kernels_are_left_out(step, asked, monkeypatch):
    first = _convolutions(step)[0]
    monkeypatch.delenv(scratch.ERRATA, raising=False)
    monkeypatch.setenv(scratch.CAP, "100")
    assert Trials(H200, lambda *_: 0).of_one_run()(step, first, 32).in_turn == (50 * MIB + RED_ZONES,)
    monkeypatch.delenv(scratch.CAP)
    with scratch.capped(GIB):
        assert Trials(H200, lambda *_: 0).of_one_run()(step, first, 32).in_turn == (50 * MIB + RED_ZONES,)
    assert asked


def test_other_batch_sizes_are_answered_without_cudnn(step, asked):
    tried = Trials(H200, lambda *_: 0)
    assert tried.are_known(step, 32)
    assert not tried.are_known(step, 64)
    run = tried.of_one_run()
    first, second = (run(step, index, 64) for index in _convolutions(step))
    assert isinstance(first, Trial)
    assert second == 0
    assert asked == [32]


def test_what_was_tried_is_free_again_when_the_kernel_runs(step, asked):
    program = lifetimes(step, 32, workspace=Trials(H200, lambda *_: 7 * MIB).of_one_run(), first=True)
    live = peak = 0
    sizes = {}
    for event in program.events:
        if event.size:
            sizes[event.buffer] = event.size
            live += event.size
        else:
            live -= sizes.pop(event.buffer, 0)
        peak = max(peak, live)
    output = 32 * 64 * 56 * 56 * 4
    # The batch, the output, and the largest trial with what it writes to.
    assert peak == pytest.approx(3 * output + 200 * MIB + 2 * RED_ZONES, rel=0.01)
    assert asked == [32]
