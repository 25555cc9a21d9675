"""An HLO module in the few terms memory needs: what each instruction reads, and how many bytes it makes.

The same terms serve the module TensorFlow emits and the one XLA:GPU compiled, both read from their protos.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# Bytes per element by `xla.PrimitiveType` (xla_data.proto). Sub-byte types round up, as XLA:GPU stores them.
_ELEMENT_BYTES = {
    **dict.fromkeys((1, 2, 6, 19, 20, 21, 22, 23, 24, 25, 28, 29, 30, 31, 32, 33), 1),
    **dict.fromkeys((3, 7, 10, 16), 2),
    **dict.fromkeys((4, 8, 11), 4),
    **dict.fromkeys((5, 9, 12, 15), 8),
    18: 16,
}
_TYPE_NAMES = {
    **{1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16"},
    **{11: "f32", 12: "f64", 13: "tuple", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn"},
}
_TUPLE = 13
# TensorFlow names the line that made the operation, which is nearly always one of its own.
_PLUMBING = re.compile(r"/(?:tensorflow|keras)/")
_BYTES_BY_NAME = {name: _ELEMENT_BYTES[number] for number, name in _TYPE_NAMES.items() if number in _ELEMENT_BYTES}
_SHAPE_TEXT = re.compile(rf"\b({'|'.join(_BYTES_BY_NAME)})\[([\d,]*)\]")


@dataclass(frozen=True)
class Window:
    """The window of a convolution or a pooling, one entry per spatial dimension."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]
    padding: tuple[int, ...] = ()
    """Before the first element."""


@dataclass(frozen=True)
class Shape:
    """An array, or a tuple of arrays (then `parts`)."""

    dtype: str
    dimensions: tuple[int, ...] = ()
    size: int = 0
    """Bytes; of a tuple, of all its parts."""
    parts: tuple["Shape", ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return f"({', '.join(map(str, self.parts))})"
        return f"{self.dtype}[{','.join(map(str, self.dimensions))}]"


@dataclass(frozen=True)
class Instruction:
    """One HLO instruction."""

    identifier: int
    name: str
    opcode: str
    shape: Shape
    operands: tuple[int, ...] = ()
    called: tuple[int, ...] = ()
    """The computations it runs: a fusion's body, a loop's condition and body, a conditional's branches."""
    op_name: str = ""
    """The path TensorFlow gave the operation; its scopes are the Keras layers."""
    source: str = ""
    parameter_number: int = -1
    tuple_index: int = 0
    target: str = ""
    """What a custom call calls."""
    window: Window | None = None
    feature_groups: int = 1
    contracting: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    dimension_roles: tuple[tuple[int, ...], ...] = ()
    """Of a convolution: (batch, feature) of the input, (input, output feature) of the kernel, (batch, feature) out."""
    spatial_roles: tuple[tuple[int, ...], ...] = ()
    """Of a convolution: the spatial dimensions of the input, of the kernel, and of the output."""


@dataclass(frozen=True)
class Computation:
    """Instructions in an order that respects their operands; the schedule's where there is one."""

    identifier: int
    name: str
    instructions: tuple[Instruction, ...]
    root: int


@dataclass(frozen=True)
class Program:
    """A whole module."""

    entry: int
    computations: Mapping[int, Computation]
    aliases: Mapping[int, int] = field(default_factory=dict)
    """Which parameter each output may reuse, by position in the result tuple."""

    @property
    def main(self) -> Computation:
        """The computation that is run."""
        return self.computations[self.entry]

    def reachable(self, computation: int) -> Iterator[Instruction]:
        """Every instruction of a computation and of those it calls."""
        for instruction in self.computations[computation].instructions:
            yield instruction
            for called in instruction.called:
                yield from self.reachable(called)


def read_program(module: Any) -> Program:
    """Read an `HloModuleProto`."""
    order = {key: tuple(value.instruction_ids) for key, value in module.schedule.sequences.items()}
    computations = {}
    for proto in module.computations:
        instructions = {each.id: _read_instruction(each) for each in proto.instructions}
        sequence = order.get(proto.id)
        ordered = tuple(instructions[each] for each in sequence) if sequence else tuple(instructions.values())
        computations[proto.id] = Computation(proto.id, proto.name, ordered, proto.root_id)
    aliases = {
        (entry.output_shape_index[0] if entry.output_shape_index else 0): entry.parameter_number
        for entry in module.input_output_alias.entries
    }
    return Program(module.entry_computation_id, computations, aliases)


def read_shape(proto: Any) -> Shape:
    """Read a `ShapeProto`."""
    if proto.element_type == _TUPLE:
        parts = tuple(read_shape(part) for part in proto.tuple_shapes)
        return Shape("tuple", (), sum(part.size for part in parts), parts)
    dimensions = tuple(proto.dimensions)
    name = _TYPE_NAMES.get(proto.element_type, f"type{proto.element_type}")
    return Shape(name, dimensions, math.prod(dimensions) * _ELEMENT_BYTES.get(proto.element_type, 0))


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Every array shape in a piece of HLO text, in order.

    Example:
        >>> [shape.size for shape in parse_shapes("f32[8,3]{1,0}, u8[0]{0}, pred[]")]
        [96, 0, 1]
    """
    shapes = []
    for name, listed in _SHAPE_TEXT.findall(text):
        dimensions = tuple(int(each) for each in listed.split(",") if each)
        shapes.append(Shape(name, dimensions, math.prod(dimensions) * _BYTES_BY_NAME[name]))
    return tuple(shapes)


def _read_instruction(proto: Any) -> Instruction:
    return Instruction(
        identifier=proto.id,
        name=proto.name,
        opcode=proto.opcode,
        shape=read_shape(proto.shape),
        operands=tuple(proto.operand_ids),
        called=tuple(proto.called_computation_ids),
        op_name=proto.metadata.op_name,
        source=_source(proto.metadata),
        parameter_number=proto.parameter_number if proto.opcode == "parameter" else -1,
        tuple_index=proto.tuple_index,
        target=proto.custom_call_target,
        window=_window(proto.window) if proto.window.dimensions else None,
        feature_groups=max(1, proto.feature_group_count),
        contracting=(
            tuple(proto.dot_dimension_numbers.lhs_contracting_dimensions),
            tuple(proto.dot_dimension_numbers.rhs_contracting_dimensions),
        ),
        dimension_roles=_roles(proto.convolution_dimension_numbers) if proto.window.dimensions else (),
        spatial_roles=_spatial_roles(proto.convolution_dimension_numbers) if proto.window.dimensions else (),
    )


def _window(proto: Any) -> Window:
    return Window(
        size=tuple(each.size for each in proto.dimensions),
        stride=tuple(each.stride for each in proto.dimensions),
        base_dilation=tuple(each.base_dilation for each in proto.dimensions),
        window_dilation=tuple(each.window_dilation for each in proto.dimensions),
        padding=tuple(each.padding_low for each in proto.dimensions),
    )


def _roles(numbers: Any) -> tuple[tuple[int, ...], ...]:
    return (
        (numbers.input_batch_dimension, numbers.input_feature_dimension),
        (numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension),
        (numbers.output_batch_dimension, numbers.output_feature_dimension),
    )


def _spatial_roles(numbers: Any) -> tuple[tuple[int, ...], ...]:
    return (
        tuple(numbers.input_spatial_dimensions),
        tuple(numbers.kernel_spatial_dimensions),
        tuple(numbers.output_spatial_dimensions),
    )


def _source(metadata: Any) -> str:
    """`file:line` of the Python that made an instruction; empty where that is TensorFlow's own plumbing."""
    if not metadata.source_file or _PLUMBING.search(metadata.source_file):
        return ""
    return f"{metadata.source_file}:{metadata.source_line}"
