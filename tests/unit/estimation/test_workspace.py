import pytest

from memfit.estimation.kernels import is_reduced_in_pieces, temporaries
from memfit.estimation.workspace import autotuning_workspace, convolution, reserve_space, steady_workspace
from memfit.hardware import scratch
from memfit.trace.step import Op
from memfit.units import GIB, MIB

AMPERE, VOLTA = (8, 6), (7, 0)


def conv(
    builder, *, kernel=3, channels=(64, 64), size=56, data_format="NCHW", stride=1, type_="Conv2D", padding="VALID"
):
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
    attributes = {"data_format": data_format, "strides": strides, "dilations": [1, 1, 1, 1], "padding": padding}
    index = builder.op(type_, *sources, shape=shape, **attributes)
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


@pytest.mark.parametrize("type_", ["Conv2D", "Conv2DBackpropInput"])
def test_three_channels_that_are_put_out_are_four_on_tensor_cores(builder, type_):
    # The last layer of a GAN's generator: 541270032 bytes were asked for on an H200.
    step, index = conv(builder, kernel=5, channels=(512, 3), size=64, type_=type_)
    assert steady_workspace(AMPERE)(step, index, 64) == pytest.approx(541270032, rel=1e-3)


def test_three_channels_of_a_picture_are_not_converted(builder):
    step, index = conv(builder, channels=(3, 32), size=192)
    assert steady_workspace(AMPERE)(step, index, 8) == 0


@pytest.mark.parametrize(
    ("kernel", "stride", "padded"),
    [(3, 2, 33), (4, 2, 32), (3, 1, 32), (5, 2, 33)],
    ids=["one more on a side", "even", "without strides", "larger"],
)
def test_uneven_padding_is_a_copy_of_the_image(builder, kernel, stride, padded):
    step, index = conv(builder, kernel=kernel, stride=stride, size=32, padding="SAME")
    assert convolution(step, index, 8).padded_bytes == pytest.approx(8 * 64 * padded**2 * 4, rel=1e-3)


def recurrent(builder, mode, samples, steps, inputs, width):
    x = builder.op("IteratorGetNext", shape=((1, 0), (0, steps), (0, inputs)))
    state = builder.op("Fill", shape=((1, 0), (0, 1), (0, width)))
    index = builder.op("CudnnRNNV3", x, state, shape=((1, 0), (0, steps), (0, width)), rnn_mode=mode)
    return builder.build(), index


@pytest.mark.parametrize(
    ("dimensions", "axes", "in_pieces"),
    [
        ((8, 32, 32, 4, 8), [1, 2, 4], True),  # group normalisation
        ((8, 32, 32, 32), [0, 1, 2], False),  # batch normalisation
        ((8, 32, 32, 32), [-1], False),  # layer normalisation
        ((8, 32, 16), [1], False),
        ((8, 4, 5, 6), [0, 2], True),
        ((1, 4, 5, 6), [1, 3], False),  # a dimension of size 1 is none
        ((), [], False),
    ],
)
def test_a_reduction_of_scattered_dimensions_copies_its_input(dimensions, axes, in_pieces):
    assert is_reduced_in_pieces(dimensions, axes) == in_pieces


# What cuDNN asked for on an H200.
@pytest.mark.parametrize(
    ("mode", "inputs", "scratch_bytes", "kept_bytes"),
    [
        ("lstm", 128, 127599872, 98304256),
        ("lstm", 256, 186844416, 98304256),
        ("gru", 128, 127075584, 117965056),
        ("gru", 256, 186254592, 117965056),
    ],
)
def test_a_recurrent_layer_takes_what_cudnn_asks_for(builder, mode, inputs, scratch_bytes, kept_bytes):
    step, index = recurrent(builder, mode, 128, 300, inputs, 128)
    assert steady_workspace(AMPERE)(step, index, 128) == pytest.approx(scratch_bytes, rel=1e-4)
    assert reserve_space(step, step.ops[index], 128) == kept_bytes


def test_autotuning_tries_a_filter_bank_in_the_frequency_domain(builder):
    # 3x3, 512 to 1024 channels, 16x16: 4420 MiB were asked for on an H200.
    step, index = conv(builder, channels=(512, 1024), size=16, padding="SAME")
    tried = autotuning_workspace(AMPERE)(step, index, 8)
    assert (tried.written + max(tried.in_turn)) / MIB == pytest.approx(4420, rel=0.02)


def test_candidates_above_the_cap_are_not_tried(builder):
    step, index = conv(builder, channels=(512, 1024), size=16)
    assert max(autotuning_workspace(AMPERE, GIB)(step, index, 8).in_turn) < 100 * MIB


def test_the_cap_of_the_process_holds(builder):
    step, index = conv(builder, channels=(512, 1024), size=16)
    with scratch.capped(GIB):
        assert max(autotuning_workspace(AMPERE)(step, index, 8).in_turn) < 100 * MIB


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
