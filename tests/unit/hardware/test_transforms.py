"""The sizes are what cuDNN 9.19 asked for on an H200."""

import pytest

from memfit.hardware.cudnn import Problem
from memfit.hardware.transforms import fourier_engine, is_fourier, kernels_left_out, winograd_gradient


def problem(kind, samples, channels, size, outputs, window, *, stride=1, dtype="f32", last=False, bias=False):
    padding = (window - 1) // 2
    output = (size + 2 * padding - window) // stride + 1
    return Problem(
        kind=kind,
        dtype=dtype,
        image=(samples, channels, size, size),
        filter=(outputs, channels, window, window),
        output=(samples, outputs, output, output),
        strides=(stride, stride),
        padding=(padding, padding),
        dilations=(1, 1),
        channels_last=last,
        adds_bias=bias,
    )


@pytest.mark.parametrize(
    ("asked", "engine", "size"),
    [
        (problem("forward", 32, 64, 56, 64, 3), 3, 207765504),
        (problem("forward", 8, 3, 56, 64, 3), 3, 17308416),
        (problem("forward", 8, 256, 96, 256, 3), 3, 8999141376),
        (problem("forward", 8, 64, 96, 256, 1), 3, 2249261056),
        (problem("input", 32, 64, 56, 64, 3), 50, 53477376),
        (problem("input", 8, 32, 30, 64, 3), 50, 12255232),
        (problem("filter", 8, 64, 56, 3, 3), 18, 18413568),
        (problem("filter", 32, 64, 56, 64, 3), 17, 116195328),
        (problem("filter", 16, 32, 56, 64, 5), 17, 52262912),
    ],
)
def test_kernels_are_sized_to_the_byte(asked, engine, size):
    assert dict(kernels_left_out(asked))[engine] == size


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        (problem("input", 8, 512, 27, 1024, 3, stride=2), 9287532560),
        (problem("forward", 8, 256, 32, 256, 3, last=True, bias=True), 2305294352),
        (problem("forward", 8, 32, 112, 64, 5, last=True, dtype="f16"), 326283280),
    ],
)
def test_strides_layouts_and_half_precision_are_near(asked, size):
    assert dict(kernels_left_out(asked))[fourier_engine(asked)] == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize(
    "asked",
    [
        problem("forward", 8, 32, 256, 64, 3),
        problem("input", 8, 32, 56, 64, 1),
        problem("forward", 8, 32, 56, 64, 3, stride=2),
        problem("forward", 8, 32, 56, 64, 3, dtype="bf16"),
    ],
)
def test_convolutions_without_such_kernels(asked):
    assert kernels_left_out(asked) == []


def test_a_number_means_another_kernel_in_another_gradient():
    assert is_fourier(problem("input", 8, 32, 56, 64, 3), 50)
    assert not is_fourier(problem("filter", 8, 32, 56, 64, 3), 50)


def test_winograds_filter_gradient_may_be_chosen_for_few_channels():
    # The last layer of a generator took 1876 MiB for it.
    assert winograd_gradient(problem("filter", 64, 512, 64, 3, 5, last=True)) >> 20 == 1876
    assert winograd_gradient(problem("filter", 64, 512, 64, 64, 5, last=True)) == 0
