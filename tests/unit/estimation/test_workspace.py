import pytest

from memfit.estimation.kernels import temporaries
from memfit.estimation.workspace import autotuning_workspace, convolution, steady_workspace
from memfit.hardware import scratch
from memfit.trace.step import Op
from memfit.units import GIB, MIB

AMPERE, VOLTA = (8, 6), (7, 0)


def conv(builder, *, kernel=3, channels=(64, 64), size=56, data_format="NCHW", stride=1, type_="Conv2D"):
    inputs, outputs = channels
    image = ((1, 0), (0, inputs), (0, size), (0, size))
    result = ((1, 0), (0, outputs), (0, size // stride), (0, size // stride))
    if data_format == "NHWC":
        image = (image[0], *image[2:], image[1])
        result = (result[0], *result[2:], result[1])
    filters = ((0, kernel), (0, kernel), (0, inputs), (0, outputs))
    x = builder.op("IteratorGetNext", shape=image)
    w = builder.op("ReadVariableOp", shape=filters)
    y = builder.op("IteratorGetNext", shape=result)
    sources, shape = {
        "Conv2D": ((x, w), result),
        "Conv2DBackpropInput": ((x, w, y), image),
        "Conv2DBackpropFilter": ((x, w, y), filters),
    }[type_]
    strides = [1, 1, stride, stride] if data_format == "NCHW" else [1, stride, stride, 1]
    index = builder.op(type_, *sources, shape=shape, data_format=data_format, strides=strides)
    return builder.build(), index


def test_float32_in_nchw_is_converted_to_nhwc_and_back(builder):
    step, index = conv(builder)
    image, filters = 32 * 64 * 56 * 56 * 4, 3 * 3 * 64 * 64 * 4
    assert steady_workspace(AMPERE)(step, index, 32) == 2 * image + filters


def test_without_tf32_there_is_nothing_to_convert(builder):
    step, index = conv(builder)
    assert steady_workspace(VOLTA)(step, index, 32) == 0


@pytest.mark.parametrize("type_", ["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"])
def test_a_pointwise_convolution_in_nhwc_is_a_matrix_product(builder, type_):
    step, index = conv(builder, kernel=1, data_format="NHWC", type_=type_)
    assert convolution(step, index, 8).is_matrix_product
    assert steady_workspace(AMPERE)(step, index, 8) == 0


def test_a_filter_gradient_keeps_at_most_fifteen_partial_results(builder):
    step, index = conv(builder, type_="Conv2DBackpropFilter")
    image, filters = 32 * 64 * 56 * 56 * 4, 3 * 3 * 64 * 64 * 4
    assert steady_workspace(AMPERE)(step, index, 32) == 2 * image + 15 * filters


def test_large_images_need_no_conversion_for_pointwise_convolutions(builder):
    step, index = conv(builder, kernel=1, size=56)
    assert steady_workspace(AMPERE)(step, index, 32) == 0


def test_autotuning_tries_a_filter_bank_in_the_frequency_domain(builder):
    # 3x3, 512 to 1024 channels, 16x16: 4420 MiB were asked for on an H200.
    step, index = conv(builder, channels=(512, 1024), size=16)
    assert autotuning_workspace(AMPERE)(step, index, 8) / MIB == pytest.approx(4420, rel=0.02)


def test_candidates_above_the_cap_are_not_tried(builder):
    step, index = conv(builder, channels=(512, 1024), size=16)
    assert autotuning_workspace(AMPERE, GIB)(step, index, 8) < 100 * MIB


def test_the_cap_of_the_process_holds(builder):
    step, index = conv(builder, channels=(512, 1024), size=16)
    with scratch.capped(GIB):
        assert autotuning_workspace(AMPERE)(step, index, 8) < 100 * MIB


def test_what_is_no_convolution_has_no_workspace(builder):
    builder.op("MatMul", shape=((1, 0),))
    assert steady_workspace(AMPERE)(builder.build(), 0, 8) == 0


@pytest.mark.parametrize(
    ("equation", "copies"),
    [
        ("abc,acd->abd", []),
        ("aecd,abcd->acbe", [10, 20]),  # both operands are transposed, the result is not
        ("acbe,aecd->abcd", [20, 5]),  # the second operand, and the result back
    ],
)
def test_einsum_copies_what_has_to_be_transposed(equation, copies):
    op = Op("einsum", "Einsum", (), (), (), attributes={"equation": equation})
    assert temporaries(op, 5, [10, 20]) == copies
