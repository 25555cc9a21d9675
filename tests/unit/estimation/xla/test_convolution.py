from memfit.estimation.xla.convolution import from_instruction, from_key
from memfit.estimation.xla.program import Instruction, Window, parse_shapes

FORWARD = (
    "(f32[8,112,112,64]{3,2,1,0}, u8[4096]{0}) custom-call(f32[8,224,224,3]{3,2,1,0}, f32[64,7,7,3]{3,2,1,0}), "
    "window={size=7x7 stride=2x2 pad=3_3x3_3}, dim_labels=b01f_o01i->b01f, "
    'custom_call_target="__cudnn$convForward", backend_config={"a":{"b":1}}'
)


def test_a_forward_convolution_is_read_from_its_key():
    conv = from_key(FORWARD)
    assert conv.kind == "forward"
    assert (conv.window, conv.stride, conv.channels, conv.workspace) == ((7, 7), (2, 2), (3, 64), 4096)
    assert conv.positions == 8 * 112 * 112


def test_the_gradients_name_the_same_image_filter_and_output():
    image, weights, output = "f32[8,32,32,16]{3,2,1,0}", "f32[24,3,3,16]{3,2,1,0}", "f32[8,32,32,24]{3,2,1,0}"
    rest = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, "
    by_filter = from_key(
        f'({weights}, u8[0]{{0}}) custom-call({image}, {output}), {rest}custom_call_target="__cudnn$convBackwardFilter"'
    )
    by_input = from_key(
        f'({image}, u8[0]{{0}}) custom-call({output}, {weights}), {rest}custom_call_target="__cudnn$convBackwardInput"'
    )
    for conv, kind in ((by_filter, "backward_filter"), (by_input, "backward_input")):
        assert conv.kind == kind
        assert str(conv.image) == "f32[8,32,32,16]"
        assert str(conv.filter) == "f32[24,3,3,16]"
        assert str(conv.output) == "f32[8,32,32,24]"
        assert conv.channels == (16, 24)


def test_groups_are_read():
    text = FORWARD.replace("dim_labels=b01f_o01i->b01f,", "dim_labels=b01f_o01i->b01f, feature_group_count=32,")
    assert from_key(text).feature_groups == 32


def test_what_is_no_convolution_is_left_alone():
    assert from_key("{\n  tmp_0 = f32[16,16]{1,0} parameter(0)\n}") is None
    assert from_key(FORWARD.replace("__cudnn$convForward", "__cublas$gemm")) is None


def test_an_instruction_gives_the_same_as_its_key():
    result, workspace, image, weights = parse_shapes(FORWARD.split(", window")[0])
    shape = type(result)("tuple", (), result.size + workspace.size, (result, workspace))
    instruction = Instruction(
        1,
        "cudnn-conv.1",
        "custom-call",
        shape,
        operands=(2, 3),
        target="__cudnn$convForward",
        window=Window((7, 7), (2, 2), (1, 1), (1, 1), (3, 3)),
        dimension_roles=((0, 3), (3, 0), (0, 3)),
        spatial_roles=((1, 2), (1, 2), (1, 2)),
    )
    read = from_instruction(instruction, (image, weights))
    assert read.name == "cudnn-conv.1"
    assert (read.kind, read.channels, read.workspace) == ("forward", (3, 64), 4096)
