"""A cuDNN convolution in terms that do not depend on its direction."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memfit.estimation.xla.program import Instruction, Shape, parse_shapes

Kind = Literal["forward", "backward_input", "backward_filter"]

TARGET = "__cudnn$conv"
_WORKSPACE_TYPE = "u8"
_KEY = re.compile(
    r'^\((?P<results>.*?)\) custom-call\((?P<operands>.*?)\), (?P<rest>.*custom_call_target="(?P<target>[^"]+)".*)$'
)
_WINDOW = re.compile(r"window=\{size=([\dx]+)(?:[^}]*? stride=([\dx]+))?")
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
    sizes = tuple(int(each) for each in window[1].split("x"))
    return _by_role(
        match["target"],
        parse_shapes(match["operands"]),
        parse_shapes(match["results"]),
        window=sizes,
        stride=tuple(int(each) for each in window[2].split("x")) if window[2] else (1,) * len(sizes),
        feature_groups=int(groups[1]) if groups else 1,
        features=(labels[1].index("f"), labels[3].index("f")),
    )


def from_instruction(instruction: Instruction, operands: Sequence[Shape]) -> Convolution | None:
    """Read an instruction of a compiled module; `None` if it is no convolution."""
    if not instruction.target.startswith(TARGET) or instruction.window is None:
        return None
    return _by_role(
        instruction.target,
        operands,
        instruction.shape.parts or (instruction.shape,),
        window=instruction.window.size,
        stride=instruction.window.stride,
        feature_groups=instruction.feature_groups,
        features=(instruction.dimension_roles[0][1], instruction.dimension_roles[2][1]),
        name=instruction.name,
        op_name=instruction.op_name,
    )


def _by_role(
    target: str,
    operands: Sequence[Shape],
    results: Sequence[Shape],
    *,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    feature_groups: int,
    features: tuple[int, int],
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
    return Convolution(
        kind=kind,
        dtype=image.dtype,
        image=image,
        filter=weights,
        output=output,
        window=window,
        stride=stride,
        feature_groups=feature_groups,
        channels=(image.dimensions[features[0]], output.dimensions[features[1]]),
        workspace=last.size if len(results) > 1 and last.dtype == _WORKSPACE_TYPE else 0,
        name=name,
        op_name=op_name,
    )
