"""A cuDNN convolution in terms that do not depend on its direction."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memfit.estimation.xla.program import Instruction, Shape, Window, parse_shapes
from memfit.hardware.cudnn import Kind as ProblemKind
from memfit.hardware.cudnn import Problem

Kind = Literal["forward", "backward_input", "backward_filter"]
_PROBLEM_KINDS: dict[Kind, ProblemKind] = {
    "forward": "forward",
    "backward_input": "input",
    "backward_filter": "filter",
}

TARGET, _WITH_BIAS = "__cudnn$conv", "__cudnn$convBiasActivationForward"
_WORKSPACE_TYPE = "u8"
_KEY = re.compile(
    r'^\((?P<results>.*?)\) custom-call\((?P<operands>.*?)\), (?P<rest>.*custom_call_target="(?P<target>[^"]+)".*)$'
)
_WINDOW = re.compile(r"window=\{size=([\dx]+)([^}]*)\}")
_STRIDE, _PADDING = re.compile(r" stride=([\dx]+)"), re.compile(r" pad=([\d_x-]+)")
_DILATION = re.compile(r" rhs_dilate=([\dx]+)")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_GROUPS = re.compile(r"feature_group_count=(\d+)")


@dataclass(frozen=True)
class Convolution:
    """One call of cuDNN: the layer's forward pass, or one of its two gradients."""

    kind: Kind
    dtype: str
    image: Shape
    """The layer's input, or its gradient."""
    filter: Shape
    output: Shape
    """The layer's output, or its gradient."""
    window: tuple[int, ...]
    stride: tuple[int, ...]
    feature_groups: int
    channels: tuple[int, int]
    """Input and output channels of the layer."""
    problem: Problem
    """As cuDNN is asked for it."""
    workspace: int = 0
    """The bytes XLA gave it: 0 where no device was there to choose an algorithm."""
    name: str = ""
    op_name: str = ""

    @property
    def positions(self) -> int:
        """Output pixels of the whole batch: what a filter gradient sums over."""
        return math.prod(self.output.dimensions) // max(1, self.channels[1])


def from_key(text: str) -> Convolution | None:
    """Read the text under which XLA's autotuner files a convolution; `None` for anything else.

    Example:
        >>> conv = from_key(
        ...     '(f32[8,32,32,16]{3,2,1,0}, u8[0]{0}) custom-call(f32[8,32,32,3]{3,2,1,0}, f32[16,3,3,3]{3,2,1,0}), '
        ...     'window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"'
        ... )
        >>> conv.kind, conv.channels, conv.window
        ('forward', (3, 16), (3, 3))
    """
    match = _KEY.match(text)
    if match is None or not match["target"].startswith(TARGET):
        return None
    window, labels, groups = (pattern.search(match["rest"]) for pattern in (_WINDOW, _LABELS, _GROUPS))
    if window is None or labels is None:
        return None
    sizes = _numbers(window[1])
    stride, padding, dilation = (pattern.search(window[2]) for pattern in (_STRIDE, _PADDING, _DILATION))
    ones = (1,) * len(sizes)
    return _by_role(
        match["target"],
        parse_shapes(match["operands"]),
        parse_shapes(match["results"]),
        window=Window(
            size=sizes,
            stride=_numbers(stride[1]) if stride else ones,
            base_dilation=ones,
            window_dilation=_numbers(dilation[1]) if dilation else ones,
            padding=tuple(int(each.split("_")[0]) for each in padding[1].split("x")) if padding else (0,) * len(sizes),
        ),
        feature_groups=int(groups[1]) if groups else 1,
        roles=tuple(_roles(labels[group]) for group in (1, 2, 3)),
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split("x"))


def _roles(labels: str) -> tuple[int, ...]:
    """Where samples (or output features), features and the spatial dimensions are."""
    first, second = ("o", "i") if "o" in labels else ("b", "f")
    spatial = sorted((label, place) for place, label in enumerate(labels) if label.isdigit())
    return labels.index(first), labels.index(second), *(place for _, place in spatial)


def from_instruction(instruction: Instruction, operands: Sequence[Shape]) -> Convolution | None:
    """Read an instruction of a compiled module; `None` if it is no convolution."""
    if not instruction.target.startswith(TARGET) or instruction.window is None:
        return None
    return _by_role(
        instruction.target,
        operands,
        instruction.shape.parts or (instruction.shape,),
        window=instruction.window,
        feature_groups=instruction.feature_groups,
        roles=_roles_of(instruction),
        name=instruction.name,
        op_name=instruction.op_name,
    )


def _roles_of(instruction: Instruction) -> tuple[tuple[int, ...], ...]:
    image, (inputs, outputs), output = instruction.dimension_roles
    first, second, third = instruction.spatial_roles
    return (*image, *first), (outputs, inputs, *second), (*output, *third)


def _by_role(
    target: str,
    operands: Sequence[Shape],
    results: Sequence[Shape],
    *,
    window: Window,
    feature_groups: int,
    roles: tuple[tuple[int, ...], ...],
    name: str = "",
    op_name: str = "",
) -> Convolution:
    kind: Kind
    if target.endswith("BackwardInput"):
        kind, image, weights, output = "backward_input", results[0], operands[1], operands[0]
    elif target.endswith("BackwardFilter"):
        kind, image, weights, output = "backward_filter", operands[0], results[0], operands[1]
    else:
        kind, image, weights, output = "forward", operands[0], operands[1], results[0]
    last = results[-1]
    image_shape, filter_shape, output_shape = (
        tuple(shape.dimensions[place] for place in places)
        for shape, places in zip((image, weights, output), roles, strict=True)
    )
    return Convolution(
        kind=kind,
        dtype=image.dtype,
        image=image,
        filter=weights,
        output=output,
        window=window.size,
        stride=window.stride,
        feature_groups=feature_groups,
        channels=(image_shape[1], output_shape[1]),
        problem=Problem(
            kind=_PROBLEM_KINDS[kind],
            dtype=image.dtype,
            image=image_shape,
            filter=filter_shape,
            output=output_shape,
            strides=window.stride,
            padding=window.padding,
            dilations=window.window_dilation,
            # XLA's layouts follow the order of the dimensions once they are assigned.
            channels_last=roles[0][1] == len(roles[0]) - 1,
            adds_bias=target == _WITH_BIAS,
        ),
        workspace=last.size if len(results) > 1 and last.dtype == _WORKSPACE_TYPE else 0,
        name=name,
        op_name=op_name,
    )
