"""What XLA:GPU decided: the bytes of a compiled step along its schedule, and whose they are."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memfit.estimation.xla.convolution import Convolution, from_instruction
from memfit.estimation.xla.program import Instruction, Program, Shape, read_program
from memfit.units import MIB

# Prefixes TensorFlow's gradient code puts before the layer's path.
_GRADIENT = re.compile(r"^(?:gradient_tape/|gradients?/)+")

_LARGE = MIB


@dataclass(frozen=True)
class Buffer:
    """A value in the temporary block."""

    size: int
    instruction: str
    opcode: str
    shape: Shape
    op_name: str
    source: str

    @property
    def layer(self) -> str:
        """The path of the Keras layer, without the marks of the gradient; empty when XLA made it up."""
        return layer_of(self.op_name)


@dataclass(frozen=True)
class Moment:
    """One step of the schedule."""

    instruction: str
    live: int
    """Bytes of temporary values while it runs."""


@dataclass(frozen=True)
class CompiledStep:
    """A step as XLA:GPU would run it."""

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    rematerialised: int
    """How many instructions XLA computes again to save memory."""
    timeline: tuple[Moment, ...]
    at_peak: tuple[Buffer, ...]
    """The values live at the peak, largest first."""
    convolutions: tuple[Convolution, ...]
    fills: tuple[Buffer, ...] = ()
    """Large buffers that are only filled with a constant (where a pooling's gradient is summed up). They wait for
    nothing, so the scheduler may put them long before their use; which it does hangs on small differences."""
    is_timed: bool = False
    """Whether its kernels were timed on the card, so that nothing is left open."""
    compiling_peak: int | None = None
    """The most bytes of device memory that timing them took, where it was done and is known."""

    @property
    def total_bytes(self) -> int:
        """Arguments, results that reuse none of them, and temporaries."""
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.temp_bytes

    @property
    def live_peak(self) -> int:
        """The most bytes of temporaries that are needed at once; the block also holds gaps between them."""
        return max((moment.live for moment in self.timeline), default=0)

    def by_layer(self) -> dict[str, int]:
        """The bytes at the peak by Keras layer, largest first."""
        totals: dict[str, int] = {}
        for buffer in self.at_peak:
            totals[buffer.layer] = totals.get(buffer.layer, 0) + buffer.size
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


def layer_of(op_name: str) -> str:
    """The layer's path in an operation's name: without gradient marks and without the operation itself."""
    path = _GRADIENT.sub("", op_name)
    return path.rpartition("/")[0] or path


def read_compiled(proto: Any, **sizes: Any) -> CompiledStep:
    """Read the `HloProto` of an optimised module and the sizes the executable reports.

    Args:
        proto: An `HloProto` with its buffer assignment.
        sizes: `argument_bytes`, `output_bytes`, `alias_bytes` and `temp_bytes`, and how it was compiled.
    """
    program = read_program(proto.hlo_module)
    instructions = {
        each.identifier: each for computation in program.computations.values() for each in computation.instructions
    }
    temporary = _temporary_values(proto.buffer_assignment)
    timeline, peak = _replay(proto.buffer_assignment, temporary, instructions)
    return CompiledStep(
        **sizes,
        rematerialised=sum(".remat" in each.name for each in program.main.instructions),
        timeline=timeline,
        at_peak=tuple(sorted(peak, key=lambda buffer: -buffer.size)),
        convolutions=tuple(_convolutions(program, instructions)),
        fills=tuple(_fills(program, instructions, temporary)),
    )


@dataclass(frozen=True)
class _Value:
    size: int
    instruction: int
    shape_index: tuple[int, ...]


def _temporary_values(assignment: Any) -> dict[int, _Value]:
    """The values XLA keeps in its temporary block, by the number of their buffer."""
    logical = {each.id: each for each in assignment.logical_buffers}
    values = {}
    for allocation in assignment.buffer_allocations:
        if (
            allocation.is_entry_computation_parameter
            or allocation.maybe_live_out
            or allocation.is_constant
            or allocation.is_thread_local
        ):
            continue
        for assigned in allocation.assigned:
            buffer = logical[assigned.logical_buffer_id]
            where = buffer.defined_at
            values[buffer.id] = _Value(assigned.size, where.instruction_id, tuple(where.shape_index))
    return values


def _replay(
    assignment: Any, temporary: Mapping[int, _Value], instructions: Mapping[int, Instruction]
) -> tuple[tuple[Moment, ...], list[Buffer]]:
    """Walk the heap XLA simulated to lay its block out: the bytes per instruction, and what is live at the peak."""
    moments: list[Moment] = []
    live: dict[int, int] = {}
    holder: dict[int, int] = {}
    holds: dict[int, int] = {}
    current = highest = 0
    at_peak: dict[int, int] = {}
    trace = max(assignment.heap_simulator_traces, key=lambda each: len(each.events), default=None)
    for event in trace.events if trace is not None else ():
        if event.kind == event.ALLOC and event.buffer_id in temporary:
            size = temporary[event.buffer_id].size
            live[event.buffer_id] = size
            holds[event.buffer_id] = 1
            current += size
        elif event.kind == event.SHARE_WITH and event.share_with_canonical_id in holds:
            holder[event.buffer_id] = event.share_with_canonical_id
            holds[event.share_with_canonical_id] += 1
        elif event.kind == event.FREE:
            owner = holder.pop(event.buffer_id, event.buffer_id)
            if owner in holds:
                holds[owner] -= 1
                if not holds[owner]:
                    del holds[owner]
                    current -= live.pop(owner)
        if current > highest:
            highest, at_peak = current, dict(live)
        if moments and moments[-1].instruction == event.instruction_name:
            moments[-1] = Moment(event.instruction_name, max(moments[-1].live, current))
        else:
            moments.append(Moment(event.instruction_name, current))
    return tuple(moments), [_buffer(temporary[each], instructions) for each in at_peak]


def _buffer(value: _Value, instructions: Mapping[int, Instruction]) -> Buffer:
    instruction = instructions[value.instruction]
    shape = instruction.shape
    for index in value.shape_index:
        shape = shape.parts[index]
    return Buffer(value.size, instruction.name, instruction.opcode, shape, instruction.op_name, instruction.source)


def _fills(
    program: Program, instructions: Mapping[int, Instruction], temporary: Mapping[int, _Value]
) -> Iterator[Buffer]:
    sizes = {value.instruction: value for value in temporary.values() if value.size >= _LARGE}
    for each in program.main.instructions:
        reads = [instructions[operand].opcode for operand in each.operands]
        if each.opcode in ("fusion", "broadcast") and each.identifier in sizes and set(reads) <= {"constant"}:
            yield _buffer(sizes[each.identifier], instructions)


def _convolutions(program: Program, instructions: Mapping[int, Instruction]) -> Iterator[Convolution]:
    for instruction in program.main.instructions:
        convolution = from_instruction(instruction, [instructions[each].shape for each in instruction.operands])
        if convolution is not None:
            yield convolution
