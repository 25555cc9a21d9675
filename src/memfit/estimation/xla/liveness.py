"""An estimate of XLA's temporaries from the step's own HLO, for when the compiler is not installed.

XLA fuses what is cheap to compute again, so such a value exists only where something that is no fusion reads it: a
convolution, a matrix product, a pooling. What is left is a graph of far fewer buffers. It is run in the order that
needs the least, as XLA's schedulers do, with variables updated in place.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from memfit.estimation.xla.compiled import Buffer, Moment
from memfit.estimation.xla.program import Computation, Instruction, Program, Shape

# Operations with a kernel of their own: they read buffers and write buffers.
_KERNELS = frozenset(
    (
        *("convolution", "dot", "custom-call", "reduce-window", "select-and-scatter", "sort", "fft"),
        *("while", "conditional", "call", "cholesky", "triangular-solve", "topk"),
        *("fusion", "dynamic-update-slice", "all-reduce", "batch-norm-training", "batch-norm-grad"),
    )
)
# They end a fusion: inputs are computed on the way in, the result is written.
_REDUCTIONS = frozenset(("reduce", "scatter"))
# No bytes of their own, whoever reads them.
_VIEWS = frozenset(("bitcast", "get-tuple-element", "tuple", "reshape", "optimization-barrier", "after-all"))
_SOURCES = frozenset(("parameter", "constant", "iota"))
# Too much work to do again in every fusion that reads it.
_EXPENSIVE = frozenset(
    (
        *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "erf", "power"),
        *("sine", "cosine", "atan2", "cbrt", "rng", "rng-bit-generator"),
    )
)
# Activations that compare with a constant.
_COMPARING = frozenset(("maximum", "clamp"))
_IMAGE_RANK = 4
# The band around the estimate: what fusion, layout copies and workspaces moved it by, in 50 steps on an H200.
_LOW, _HIGH = 0.75, 1.45


@dataclass(frozen=True)
class LivenessEstimate:
    """Temporaries as the model of fusion sees them."""

    temp_bytes: int
    low: int
    high: int
    timeline: tuple[Moment, ...]
    at_peak: tuple[Buffer, ...]
    """The values live at the peak, largest first."""


@dataclass(frozen=True)
class _Kernel:
    """One instruction that writes a buffer, and the buffers it reads through what is fused into it."""

    instruction: Instruction
    size: int
    reads: frozenset[int]


def estimate_temporaries(program: Program) -> LivenessEstimate:
    """Estimate the temporaries of an HLO module that has not been optimised.

    Args:
        program: The module, read with `read_program` from `LoweredStep.hlo`.
    """
    kernels = _kernels(program)
    orders = (list(kernels), _least_memory_first(kernels))
    timelines = [_walk(kernels, order) for order in orders]
    timeline, live = min(timelines, key=lambda walked: max((moment.live for moment in walked[0]), default=0))
    peak = max((moment.live for moment in timeline), default=0)
    inner = max((_inside(program, each.instruction) for each in kernels.values()), default=0)
    temporaries = peak + inner
    buffers = [_as_buffer(kernels[each]) for each in live]
    return LivenessEstimate(
        temp_bytes=temporaries,
        low=int(temporaries * _LOW),
        high=int(temporaries * _HIGH),
        timeline=timeline,
        at_peak=tuple(sorted(buffers, key=lambda buffer: -buffer.size)),
    )


def _kernels(program: Program) -> dict[int, _Kernel]:
    """The instructions that write buffers, in the module's order, with what each of them reads."""
    by_id = {each.identifier: each for each in program.main.instructions}
    main = _simplified(program.main, by_id)
    by_id = {each.identifier: each for each in main.instructions}
    in_place = _updated_in_place(program, main, by_id)
    written = {each.identifier for each in main.instructions if each.opcode in _KERNELS | _REDUCTIONS}
    for reader in main.instructions:
        if reader.opcode in _KERNELS:
            for operand in reader.operands:
                written.update(_sources_of(by_id, operand))
    written.update(each for each in _results(main, by_id) if by_id[each].opcode not in _SOURCES)
    written.update(_shared_work(main, by_id, written))
    zeros = _shared_zeros(main, by_id)
    written.update(zeros.values())
    readings = _readings(main, by_id, written, zeros)
    return {
        each.identifier: _Kernel(each, _buffer_bytes(each, in_place, zeros), readings[each.identifier])
        for each in main.instructions
        if each.identifier in written
    }


def _simplified(main: Computation, by_id: Mapping[int, Instruction]) -> Computation:
    """What is left of a computation when nobody reads a result, and where a matrix product is none.

    TensorFlow lowers gradients of layers that are not trained as well; XLA drops what does not reach a result.
    """
    used: set[int] = set()
    pending = [main.root]
    while pending:
        identifier = pending.pop()
        if identifier not in used:
            used.add(identifier)
            pending += by_id[identifier].operands
    opcodes: dict[int, str] = {}
    for each in main.instructions:
        opcodes[each.identifier] = _opcode(each, by_id)
        # A sum is written in the order that is wanted.
        if each.opcode == "transpose" and by_id[each.operands[0]].opcode == "dot":
            opcodes[each.identifier] = "bitcast" if opcodes[each.operands[0]] == "reduce" else "transpose"
    kept = (each for each in main.instructions if each.identifier in used)
    return replace(main, instructions=tuple(replace(each, opcode=opcodes[each.identifier]) for each in kept))


def _opcode(instruction: Instruction, by_id: Mapping[int, Instruction]) -> str:
    """What XLA makes of an instruction, which it can fuse where a product is none of matrices.

    A product with a vector is a sum, and one that sums nothing a multiplication (algebraic_simplifier.cc). Bilinear
    resizing is made of such products, one of them ten times the size of its result.
    """
    if instruction.opcode != "dot":
        return instruction.opcode
    left, right = (by_id[operand].shape.dimensions for operand in instruction.operands[:2])
    summed = math.prod(left[each] for each in instruction.contracting[0])
    if summed == 1:
        return "multiply"
    # Both sides have the batch and what is summed, the result has the batch and what is left of both sides.
    result = max(1, math.prod(instruction.shape.dimensions))
    batch = math.prod(left) * math.prod(right) // (result * summed**2)
    of_one_side = min(math.prod(left), math.prod(right)) // max(1, batch * summed)
    return "reduce" if batch > 1 and of_one_side == 1 else "dot"


def _readings(
    main: Computation, by_id: Mapping[int, Instruction], written: set[int], zeros: Mapping[Shape, int]
) -> dict[int, frozenset[int]]:
    """The buffers each instruction reads, itself or through what is fused into it."""
    reads: dict[int, frozenset[int]] = {}
    for each in main.instructions:
        found: set[int] = set()
        for operand in each.operands:
            if operand not in written:
                found |= reads[operand]
            elif each.opcode in _KERNELS or not _is_plain_activation(by_id, operand):
                found.add(operand)
            else:
                found |= reads[operand]
        if each.opcode == "select-and-scatter" and each.shape in zeros:
            found.add(zeros[each.shape])
        if each.opcode in _COMPARING and each.shape in zeros:
            found.add(zeros[each.shape])
        reads[each.identifier] = frozenset(found)
    return reads


def _is_plain_activation(by_id: Mapping[int, Instruction], identifier: int) -> bool:
    """A ReLU right after a convolution or a matrix product and its bias, with no normalisation in between.

    Its gradient compares the kernel's result again instead of reading the activation, so that both stay.
    """
    instruction = by_id[identifier]
    if instruction.opcode not in _COMPARING:
        return False
    pending = list(instruction.operands)
    while pending:
        each = by_id[pending.pop()]
        if each.opcode in ("convolution", "dot"):
            return True
        if each.opcode in _VIEWS or each.opcode in ("add", "convert"):
            pending += each.operands
    return False


def _shared_zeros(main: Computation, by_id: Mapping[int, Instruction]) -> dict[Shape, int]:
    """Zeros that a pooling's gradient starts from and that activations of the same shape compare with.

    XLA makes them one value. It has to exist for the pooling, so the activations read it too, and it exists from the
    first of them on (VGG16: two fifths of its temporaries). Volumes were not seen to share theirs; bfloat16 is compared
    in float32, with zeros of its own.
    """
    pooled = {
        each.shape
        for each in main.instructions
        if each.opcode == "select-and-scatter"
        and len(each.shape.dimensions) <= _IMAGE_RANK
        and each.shape.dtype != "bf16"
    }
    found: dict[Shape, int] = {}
    for each in main.instructions:
        if each.shape in pooled and each.shape not in found and _is_plain_activation(by_id, each.identifier):
            for operand in each.operands:
                if _is_scalar_broadcast(by_id, by_id[operand]):
                    found[each.shape] = operand
    return found


def _buffer_bytes(instruction: Instruction, in_place: frozenset[int], zeros: Mapping[Shape, int]) -> int:
    if instruction.identifier in in_place:
        return 0
    if zeros.get(instruction.shape) == instruction.identifier:
        # And the copy that the pooling's gradient is summed up in.
        return 2 * instruction.shape.size
    return instruction.shape.size


def _shared_work(main: Computation, by_id: Mapping[int, Instruction], written: set[int]) -> set[int]:
    """What XLA keeps of expensive values that more than one kernel would have to compute.

    Where only one instruction reads such a value, its result is kept instead if it is smaller: of the random bits of a
    dropout the mask, a byte for each number.
    """
    readers: dict[int, set[int]] = {each.identifier: set() for each in main.instructions}
    consumers: dict[int, set[int]] = {each.identifier: set() for each in main.instructions}
    for each in reversed(main.instructions):
        into = {each.identifier} if each.identifier in written else readers[each.identifier]
        for operand in each.operands:
            readers[operand] |= into
            consumers[operand].add(each.identifier)

    def kept(identifier: int) -> int:
        smallest = identifier
        while len(consumers[identifier]) == 1 and identifier not in written:
            (identifier,) = consumers[identifier]
            if by_id[identifier].shape.size < by_id[smallest].shape.size and by_id[identifier].opcode not in _VIEWS:
                smallest = identifier
        return smallest

    return {kept(each) for each, found in readers.items() if by_id[each].opcode in _EXPENSIVE and len(found) > 1}


def _sources_of(by_id: Mapping[int, Instruction], identifier: int) -> Iterable[int]:
    """The instructions whose bytes a value is, seen through views."""
    instruction = by_id[identifier]
    if instruction.opcode in _VIEWS:
        for operand in instruction.operands:
            yield from _sources_of(by_id, operand)
    elif instruction.opcode not in _SOURCES and not _is_scalar_broadcast(by_id, instruction):
        yield identifier


def _is_scalar_broadcast(by_id: Mapping[int, Instruction], instruction: Instruction) -> bool:
    """A constant spread out is never stored: whoever reads it knows the value."""
    return instruction.opcode == "broadcast" and by_id[instruction.operands[0]].opcode in _SOURCES


def _results(main: Computation, by_id: Mapping[int, Instruction]) -> list[int]:
    root = by_id[main.root]
    operands = root.operands if root.opcode == "tuple" else (root.identifier,)
    return [source for operand in operands for source in _sources_of(by_id, operand)]


def _updated_in_place(program: Program, main: Computation, by_id: Mapping[int, Instruction]) -> frozenset[int]:
    """Instructions whose result goes where a variable is."""
    root = by_id[main.root]
    if root.opcode != "tuple":
        return frozenset()
    found: set[int] = set()
    for position, operand in enumerate(root.operands):
        if position in program.aliases:
            found.add(operand)
            found.update(_sources_of(by_id, operand))
    return frozenset(found)


def _inside(program: Program, instruction: Instruction) -> int:
    """What the body of a loop or a branch needs beyond its operands and results."""
    if instruction.opcode not in ("while", "conditional", "call"):
        return 0
    largest = 0
    for called in instruction.called:
        body = Program(called, program.computations)
        kernels = _kernels(body)
        timeline, _ = _walk(kernels, list(kernels))
        largest = max(largest, max((moment.live for moment in timeline), default=0) - instruction.shape.size)
    return max(0, largest)


def _walk(kernels: Mapping[int, _Kernel], order: Iterable[int]) -> tuple[tuple[Moment, ...], set[int]]:
    """Run kernels in an order: the bytes live at each, and the buffers live at the peak."""
    readers: dict[int, int] = {}
    for kernel in kernels.values():
        for read in kernel.reads:
            readers[read] = readers.get(read, 0) + 1
    moments = []
    live: set[int] = set()
    current = highest = 0
    at_peak: set[int] = set()
    for identifier in order:
        kernel = kernels[identifier]
        current += kernel.size
        live.add(identifier)
        moments.append(Moment(kernel.instruction.name, current))
        if current > highest:
            highest, at_peak = current, set(live)
        for read in kernel.reads:
            readers[read] -= 1
            if not readers[read]:
                current -= kernels[read].size
                live.discard(read)
        if not readers.get(identifier):
            current -= kernel.size
            live.discard(identifier)
    return tuple(moments), at_peak


def _least_memory_first(kernels: Mapping[int, _Kernel]) -> list[int]:
    """A list schedule: of what can run, take what frees the most beyond what it needs."""
    readers: dict[int, set[int]] = {each: set() for each in kernels}
    waiting = {}
    for identifier, kernel in kernels.items():
        waiting[identifier] = len(kernel.reads)
        for read in kernel.reads:
            readers[read].add(identifier)
    unread = {identifier: len(each) for identifier, each in readers.items()}
    position = {identifier: place for place, identifier in enumerate(kernels)}

    def gain(identifier: int) -> int:
        kernel = kernels[identifier]
        return sum(kernels[read].size for read in kernel.reads if unread[read] == 1) - kernel.size

    return _list_schedule(waiting, readers, kernels, unread, lambda each: (gain(each), -position[each]))


def _list_schedule(
    waiting: dict[int, int],
    readers: Mapping[int, set[int]],
    kernels: Mapping[int, _Kernel],
    unread: dict[int, int],
    priority: Callable[[int], tuple[int, int]],
) -> list[int]:
    ready = {each: priority(each) for each, count in waiting.items() if not count}
    order = []
    while ready:
        chosen = max(ready, key=ready.__getitem__)
        del ready[chosen]
        order.append(chosen)
        for read in kernels[chosen].reads:
            unread[read] -= 1
            if unread[read] == 1:
                for reader in readers[read]:
                    if reader in ready:
                        ready[reader] = priority(reader)
        for reader in readers[chosen]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready[reader] = priority(reader)
    return order


def _as_buffer(kernel: _Kernel) -> Buffer:
    each = kernel.instruction
    return Buffer(kernel.size, each.name, each.opcode, each.shape, each.op_name, each.source)
