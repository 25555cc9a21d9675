"""The numbers with a unit are what an H200 took (cuDNN 9.19)."""

import dataclasses

import pytest

from memfit.estimation.xla.convolution import Convolution
from memfit.estimation.xla.program import Shape
from memfit.estimation.xla.workspace import workspace
from memfit.hardware.cudnn import Kernel, Problem
from memfit.units import MIB

H200 = 132


def conv(kind, image, weights, output, *, dtype="f32", groups=1, stride=1):
    size = 4 if dtype == "f32" else 2
    shapes = []
    for dimensions in (image, weights, output):
        elements = size
        for each in dimensions:
            elements *= each
        shapes.append(Shape(dtype, dimensions, elements))
    window = weights[1:3]
    return Convolution(
        kind=kind,
        dtype=dtype,
        image=shapes[0],
        filter=shapes[1],
        output=shapes[2],
        window=window,
        stride=(stride, stride),
        feature_groups=groups,
        channels=(image[3], output[3]),
        problem=Problem(
            kind={"forward": "forward", "backward_input": "input", "backward_filter": "filter"}[kind],
            dtype=dtype,
            image=(image[0], image[3], *image[1:3]),
            filter=(weights[0], weights[3], *window),
            output=(output[0], output[3], *output[1:3]),
            strides=(stride, stride),
            padding=tuple(size // 2 for size in window),
            dilations=(1, 1),
            channels_last=True,
        ),
    )


@pytest.mark.parametrize("kind", ["forward", "backward_input"])
def test_channels_last_convolutions_run_without_workspace(kind):
    assert workspace(conv(kind, (8, 64, 64, 128), (128, 3, 3, 128), (8, 64, 64, 128)), H200).likely == 0


def test_an_rgb_image_is_copied_to_another_layout():
    measured = 9.223 * MIB
    stem = conv("forward", (16, 224, 224, 3), (64, 7, 7, 3), (16, 112, 112, 64), stride=2)
    assert workspace(stem, H200).likely == pytest.approx(measured, rel=0.01)


def test_the_filter_gradient_of_a_large_window_over_rgb_copies_both_operands():
    measured = 64.073 * MIB
    stem = conv("backward_filter", (16, 224, 224, 3), (64, 7, 7, 3), (16, 112, 112, 64), stride=2)
    assert workspace(stem, H200).likely == pytest.approx(measured, rel=0.05)


def test_half_precision_is_padded_by_xla_and_needs_no_copies():
    stem = conv("forward", (16, 128, 128, 4), (64, 3, 3, 4), (16, 128, 128, 64), dtype="f16")
    assert workspace(stem, H200).likely == 0


@pytest.mark.parametrize(
    ("image", "weights", "output", "measured_mib"),
    [
        ((16, 28, 28, 512), (512, 3, 3, 512), (16, 28, 28, 512), 8.25),
        ((16, 28, 28, 512), (256, 1, 1, 512), (16, 28, 28, 256), 16.5),
        ((16, 56, 56, 256), (128, 1, 1, 256), (16, 56, 56, 128), 8.25),
        ((32, 14, 14, 480), (112, 1, 1, 480), (32, 14, 14, 112), 13.5),
        ((16, 17, 17, 768), (192, 1, 1, 768), (16, 17, 17, 192), 12.4),
    ],
)
def test_partial_sums_of_filter_gradients_stay_in_the_range(image, weights, output, measured_mib):
    predicted = workspace(conv("backward_filter", image, weights, output), H200)
    assert predicted.low <= measured_mib * MIB <= predicted.high
    assert predicted.likely > 0


def test_partial_sums_grow_with_the_multiprocessors():
    gradient = conv("backward_filter", (16, 28, 28, 512), (512, 3, 3, 512), (16, 28, 28, 512))
    assert workspace(gradient, 66).likely * 2 == workspace(gradient, 132).likely


def test_depthwise_filter_gradients_need_little():
    gradient = conv("backward_filter", (32, 56, 56, 144), (144, 3, 3, 1), (32, 56, 56, 144), groups=144)
    assert workspace(gradient, H200).likely < 2 * MIB


@pytest.mark.parametrize("kind", ["forward", "backward_input", "backward_filter"])
@pytest.mark.parametrize("channels", [1, 3, 4, 64])
def test_what_is_likely_lies_in_the_range(kind, channels):
    for window in (1, 3, 7):
        call = conv(kind, (4, 32, 32, channels), (32, window, window, channels), (4, 32, 32, 32))
        for each in (call, dataclasses.replace(call, feature_groups=channels)):
            predicted = workspace(each, H200)
            assert 0 <= predicted.low <= predicted.likely <= predicted.high


def test_the_first_kernel_that_cudnn_offers_is_likely():
    forward = conv("forward", (8, 64, 64, 128), (128, 3, 3, 128), (8, 64, 64, 128))
    assert workspace(forward, H200, (Kernel(67, 131), Kernel(46, 33 * MIB))).likely == 131


def test_kernels_with_fourier_transforms_are_never_chosen():
    forward = conv("forward", (8, 64, 64, 128), (128, 3, 3, 128), (8, 64, 64, 128))
    assert workspace(forward, H200, (Kernel(3, 4000 * MIB), Kernel(67, 131))).likely == 131


def test_filter_gradients_of_few_channels_run_on_copies():
    # A VGG16 of half the width at batch 64 took 788 MiB where cuDNN offers a kernel without copies first.
    gradient = conv("backward_filter", (64, 224, 224, 32), (32, 3, 3, 32), (64, 224, 224, 32))
    offered = (Kernel(68, 295107), Kernel(20, 0), Kernel(30, 822_000_000))
    assert workspace(gradient, H200, offered).likely / MIB == pytest.approx(788, rel=0.02)


def test_depthwise_kernels_that_copy_are_not_chosen():
    gradient = conv("backward_filter", (32, 40, 40, 128), (128, 3, 3, 1), (32, 40, 40, 128), dtype="bf16", groups=128)
    assert workspace(gradient, H200, (Kernel(10, 101 * MIB), Kernel(9, 100 * MIB), Kernel(0, 0))).likely == 0
