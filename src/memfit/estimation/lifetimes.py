"""When each buffer of a step is taken and given back, in the order the executor dispatches operations.

A buffer dies when its last consumer has been dispatched. GPU kernels are cheap to dispatch, so one thread runs them in
the order they become ready (executor.cc: a FIFO, data edges before control edges). A CPU's kernels are expensive: of
those that become ready together all but the last go to a pool, whose thread takes the newest first.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from memfit.estimation.kernels import (
    AFTER_SCRATCH,
    ALIASES,
    ALIASES_IF_SAME_SIZE,
    CHEAP,
    NEED_MORE,
    NEED_MORE_EVERYWHERE,
    ONE_BY_ONE,
    REWRITTEN,
    convolution_temporaries,
    forwardable,
    is_reduced_in_pieces,
    recurrent_temporaries,
    temporaries,
)
from memfit.estimation.workspace import FirstWorkspace, Trial, Workspace, convolution, reserve_space
from memfit.hardware import onednn
from memfit.trace.step import AHEAD, REDUCTIONS, Op, Step
from memfit.units import MIB

# Operations that compute more than they move, and by about how much.
_MULTIPLYING = ("Conv", "_FusedConv", "MatMul", "_FusedMatMul", "BatchMatMul", "Einsum", "DepthwiseConv")
_COMPUTES = 20
# How many times as long or as short as that a perturbed order has each operation run: kernels differ in speed.
_SPEEDS = 4.0
# Sums of a loop up to this size fall behind it in every step: of 40 steps all did with 0.25 MiB, one with 1 MiB.
_ADDED_IN_TIME = MIB // 2
# How many consumers of an operation are walked in their order; more are in that of their addresses (edgeset.h).
_WALKED_IN_ORDER = 8
# How far ahead of the FIFO a perturbed order may reach: the pool's threads race at the start of a step, and
# operations with many consumers walk them in any order.
_PERTURBATION = 8


@dataclass(frozen=True, slots=True)
class Event:
    """A buffer is taken (`size` > 0) or given back (`size` == 0) while an operation runs."""

    buffer: int
    size: int
    op: int
    temporary: bool = False
    workspace: bool = False


@dataclass
class Program:
    """The memory events of one step at one batch size."""

    events: list[Event] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    variables_at_start: list[int] = field(default_factory=list)
    """The buffer each variable has before the step."""
    variables_at_end: list[int] = field(default_factory=list)
    """The buffer each variable has after it."""
    constants: list[int] = field(default_factory=list)
    """Sizes of constants that live on the device from step to step."""
    buffers: int = 0


def lifetimes(
    step: Step,
    batch: int,
    *,
    workspace: Workspace | FirstWorkspace,
    first: bool = False,
    seed: int | None = None,
    threads: int = 1,
) -> Program:
    """Walk the step in executor order.

    Args:
        step: The step.
        batch: The batch size.
        workspace: Scratch each operation takes while it runs.
        first: Whether it is the first step, in which optimizer slots of the same shape still share their zeros.
        seed: Perturb the order; `None` is the plain one.
        threads: How many operations a CPU runs at once, at most.
    """
    return _Walk(step, batch, workspace, first, seed, threads).run()


@dataclass(frozen=True)
class _Running:
    """An operation that has begun."""

    number: int
    outputs: list[int | None]
    scratch: list[int]


class _Walk:
    def __init__(
        self, step: Step, batch: int, workspace: Workspace | FirstWorkspace, first: bool, seed: int | None, threads: int
    ) -> None:
        self.step, self.batch, self.workspace, self.threads = step, batch, workspace, threads
        self.seed = seed or 0
        self.random = None if seed is None else random.Random(seed)
        self.program = Program()
        self.references: list[int] = []
        self.variable_buffers = self._variables(first)
        self.program.variables_at_start = list(self.variable_buffers)
        self.elements = [tuple(each.elements(batch) for each in op.outputs) for op in step.ops]
        self.sizes = [self._sizes(number, op) for number, op in enumerate(step.ops)]
        self.consumers: list[list[tuple[int, int, int]]] = [[] for _ in step.ops]
        self.followers: list[list[int]] = [[] for _ in step.ops]
        self.pending = [0] * len(step.ops)
        for number, op in enumerate(step.ops):
            # A Merge waits for whichever branch runs; the other was removed with its branch.
            self.pending[number] = len(op.inputs) + len(op.control_inputs)
            for position, (source, output) in enumerate(op.inputs):
                self.consumers[source].append((output, number, position))
            for source in op.control_inputs:
                self.followers[source].append(number)
        self.arrived: list[list[int | None]] = [[None] * len(op.inputs) for op in step.ops]
        self.of_other_turns: dict[int, list[int]] = {}
        self.summed: set[int] = set()
        self.sums = sum(
            1 for number, op in enumerate(step.ops) if self._turns_ahead(number, op) and not self._is_alias(number, op)
        )

    def _variables(self, first: bool) -> list[int]:
        """Keras fills all slots in one graph, in which Grappler makes one constant of equal zeros."""
        shared: dict[int, int] = {}
        buffers = []
        for variable in self.step.variables:
            buffer = shared.get(variable.bytes) if first and variable.kind == "optimizer" else None
            if buffer is None:
                buffer = self._new_buffer()
                if variable.kind == "optimizer":
                    shared[variable.bytes] = buffer
                    # On a CPU the constant itself is the slots' first buffer, and stays.
                    self.references[buffer] += first and self.step.device == "CPU"
            self.references[buffer] += 1
            buffers.append(buffer)
        return buffers

    def _sizes(self, number: int, op: Op) -> tuple[int, ...]:
        """Bytes each output takes on the device; those in host memory take none."""
        sizes = tuple(
            0 if each.on_host else (count or 0) * each.item_bytes
            for each, count in zip(op.outputs, self.elements[number], strict=True)
        )
        if op.type == "CudnnRNNV3":
            return (*sizes[:3], reserve_space(self.step, op, self.batch), *sizes[4:])
        return sizes

    def run(self) -> Program:
        constants: dict[int, int] = {}
        for number, op in enumerate(self.step.ops):
            if op.type == "Const" and any(self.sizes[number]):
                buffer = self._new_buffer()
                self.references[buffer] += 1
                constants[number] = buffer
                self.program.constants.append(self.sizes[number][0])
        self.constants = constants
        # A loop made straight is a long chain, which threads seldom share: only some orders let them.
        is_perturbed = self.random is not None and self.threads > 1
        if self.step.device == "CPU" and (is_perturbed or not self.step.has_loops):
            self._run_in_pool()
        else:
            self._run_inline()
        self.program.variables_at_end = self.variable_buffers
        self.program.buffers = len(self.references)
        return self.program

    def _run_inline(self) -> None:
        ready = deque(number for number, count in enumerate(self.pending) if count == 0)
        while ready:
            if self.random is not None and len(ready) > 1:
                ready.rotate(-self.random.randrange(min(len(ready), _PERTURBATION)))
            ready.extend(self._dispatch(ready.popleft()))

    def _run_in_pool(self) -> None:
        """Threads of a pool, each with a stack of its own, which others take the oldest of when they have nothing.

        The batch arrives when nothing else is left to do.
        """
        ops = self.step.ops
        roots = [number for number, count in enumerate(self.pending) if count == 0]
        arriving = [number for number in roots if ops[number].type == "IteratorV2"]
        stacks: list[list[int]] = [[] for _ in range(self.threads)]
        stacks[0] = [number for number in roots if ops[number].type != "IteratorV2"]
        if self.random is not None:
            self.random.shuffle(stacks[0])  # they hang on one source, whose consumers are walked in hash order
        inline: list[deque[int]] = [deque() for _ in stacks]
        running: list[tuple[int, int, int, _Running]] = []
        idle, now, begun = list(range(self.threads)), 0, 0

        def next_of(thread: int) -> int | None:
            if inline[thread]:
                return inline[thread].popleft()
            if stacks[thread]:
                return stacks[thread].pop()
            longest = max(stacks, key=len)
            if longest:
                return longest.pop(0)
            return arriving.pop() if arriving and not running else None

        while True:
            for thread in list(idle):
                number = next_of(thread)
                if number is not None:
                    idle.remove(thread)
                    begun += 1
                    heappush(running, (now + self._duration(number), begun, thread, self._begin(number)))
            if not running:
                return
            now, _, thread, done = heappop(running)
            idle.append(thread)
            ready = self._as_rewritten(self._end(done))
            if ops[done.number].type == "CallEnd":  # whoever ends a call runs nothing of the caller's
                stacks[thread].extend(self._as_in_memory(done.number, ready))
                continue
            inline[thread].extend(number for number in ready if ops[number].type in CHEAP)
            expensive = [number for number in ready if ops[number].type not in CHEAP]
            if expensive and not inline[thread]:
                inline[thread].append(expensive.pop())
            stacks[thread].extend(expensive)

    def _duration(self, number: int) -> int:
        """How long an operation runs, about: the bytes it moves, many times over where it multiplies matrices."""
        op = self.step.ops[number]
        if op.type in CHEAP:
            return 0
        moved = sum(self.sizes[number]) + sum(self.sizes[source][output] for source, output in op.inputs)
        duration = moved * (_COMPUTES if op.type.startswith(_MULTIPLYING) else 1)
        return duration if self.random is None else int(duration * _SPEEDS ** self.random.uniform(-1, 1))

    def _as_rewritten(self, ready: list[int]) -> list[int]:
        """Put oneDNN's kernels behind the other consumers, as its pass does, in an order that depends on addresses.

        It walks the graph from whichever variable comes first: siblings come mostly in one order or its reverse.
        """
        if onednn.is_off():
            return ready
        rewritten = [number for number in ready if self.step.ops[number].type in REWRITTEN]
        if self.random is not None and self.seed % 4:
            self.random.shuffle(rewritten)
        elif self.random is not None:
            rewritten.reverse()
        return [number for number in ready if number not in rewritten] + rewritten

    def _as_in_memory(self, number: int, ready: list[int]) -> list[int]:
        """The order of consumers, which is that of addresses where there are many."""
        if self.random is not None and len(self.consumers[number]) + len(self.followers[number]) > _WALKED_IN_ORDER:
            self.random.shuffle(ready)
        return ready

    def _dispatch(self, number: int) -> list[int]:
        return self._end(self._begin(number))

    def _begin(self, number: int) -> _Running:
        """Start an operation: its outputs and its scratch memory are there now."""
        self.program.order.append(number)
        outputs, scratch = self._compute(number, self.step.ops[number], self.arrived[number])
        for buffer in outputs:
            if buffer is not None:
                self.references[buffer] += 1
        return _Running(number, outputs, scratch)

    def _end(self, done: _Running) -> list[int]:
        """Finish an operation; returns what can run now."""
        number, outputs = done.number, done.outputs
        for held in done.scratch:
            self.program.events.append(Event(held, 0, number, temporary=True))
        for source, _ in self.step.ops[number].inputs:
            self._add_up(source, number)
        for buffer in self.arrived[number]:
            self._release(buffer, number)
        self.arrived[number] = []
        ready: list[int] = []
        for output, consumer, position in self.consumers[number]:
            buffer = outputs[output] if output < len(outputs) else None
            if buffer is not None:
                self.references[buffer] += 1
                self.arrived[consumer][position] = buffer
            self._count_down(consumer, ready)
        for follower in self.followers[number]:
            self._count_down(follower, ready)
        for buffer in outputs:
            self._release(buffer, number)
        return ready

    def _add_up(self, source: int, number: int) -> None:
        """Give back what waited for a sum.

        In a perturbed order of one thread nothing is added before the last loop has run, as may happen where one loop
        follows another: of two LSTMs 33 turns of one and 23 of the other waited.
        """
        if source not in self.of_other_turns:
            return
        self.summed.add(source)
        is_last = len(self.summed) == self.sums
        if self.threads == 1 and self.random is not None and self.sizes[source][0] <= _ADDED_IN_TIME and not is_last:
            return
        for each in sorted(self.summed) if is_last else (source,):
            for waiting in self.of_other_turns.pop(each, ()):
                self.program.events.append(Event(waiting, 0, number))

    def _count_down(self, number: int, ready: list[int]) -> None:
        self.pending[number] -= 1
        if self.pending[number] == 0:
            ready.append(number)

    def _compute(self, number: int, op: Op, inputs: Sequence[int | None]) -> tuple[list[int | None], list[int]]:
        """The buffers of an operation's outputs, and those it needs only while it runs."""
        sizes = self.sizes[number]
        if op.type == "ReadVariableOp":
            return [None if op.variable is None else self.variable_buffers[op.variable]], []
        if op.type == "Const":
            return [self.constants.get(number)], []
        if op.type == "AssignVariableOp":
            self._assign(op, inputs, number)
            return [None] * len(sizes), []
        if op.type in ("AssignAddVariableOp", "AssignSubVariableOp"):
            self._update_in_place(op, number)
            return [None] * len(sizes), []
        if self._is_alias(number, op):
            aliases = [
                inputs[min(index, len(inputs) - 1)] if op.type in ONE_BY_ONE else inputs[0]
                for index in range(len(sizes))
            ]
            return aliases, []
        outputs: list[int | None] = []
        late = AFTER_SCRATCH.get(op.type)
        for index, size in enumerate(sizes):
            if not size or index == late:
                outputs.append(None)
                continue
            forwarded = self._forwarded(number, op, index, inputs)
            outputs.append(self._allocate(size, number) if forwarded is None else forwarded)
        if turns := self._turns_ahead(number, op):
            waiting = self._waiting_size(number, op)
            self.of_other_turns[number] = [self._allocate(waiting, number) for _ in range(turns)]
        scratch = self._scratch(number, op)
        if late is not None and sizes[late]:
            outputs[late] = self._allocate(sizes[late], number)
        return outputs, scratch

    def _turns_ahead(self, number: int, op: Op) -> int:
        """How many results of other turns of a loop wait to be added, where no thread has the time for it.

        A thread of the pool takes the newest first: the first turn's result, which all the others are added to, comes
        last. A second thread would take the oldest first, if it had nothing else to do.
        """
        ahead = op.attributes.get(AHEAD)
        if self.step.device != "CPU" or not isinstance(ahead, list) or not any(self.sizes[number]):
            return 0
        if self.threads == 1 and self.random is not None and not self.seed % 2:
            return 0  # alone, a thread adds in time or not at all: an LSTM took 11 MiB in some steps, 17 in others
        turns, loops_at_once = map(int, ahead)
        if self.threads > 1 and (loops_at_once < self.threads - 1 or self.sizes[number][0] > _ADDED_IN_TIME):
            return 0
        return turns - 1

    def _waiting_size(self, number: int, op: Op) -> int:
        """What another turn holds for a sum: its result, or what that is computed from as long as it is not."""
        size = self.sizes[number][0]
        held = size
        for source, output in op.inputs:
            if self.step.ops[source].type != "TensorListPopBack":
                together = {each for _, each, _ in self.consumers[source] if AHEAD in self.step.ops[each].attributes}
                results = sum(self.sizes[each][0] for each in together)
                held = max(held, self.sizes[source][output] * size // max(results, 1))
        return held

    def _is_alias(self, number: int, op: Op) -> bool:
        if not op.inputs:
            return False
        if op.type in ALIASES:
            return True
        source, output = op.inputs[0]
        if op.type == "Cast":
            return self.step.ops[source].outputs[output].dtype == op.outputs[0].dtype
        if op.type in ALIASES_IF_SAME_SIZE and self.elements[source][output] == self.elements[number][0]:
            return op.type != "Transpose" or self._moves_nothing(op)
        if op.type in ("Slice", "StridedSlice"):
            # Rows of a tensor are a part of its buffer.
            before, after = self._dimensions(source, output), self._dimensions(number, 0)
            return bool(before and after) and before[1:] == after[1:] and len(before) == len(after)
        return False

    def _dimensions(self, number: int, output: int) -> tuple[int, ...]:
        return self.step.ops[number].outputs[output].dimensions(self.batch) or ()

    def _moves_nothing(self, op: Op) -> bool:
        """A transpose that moves only dimensions of size 1 is a reshape."""
        before, after = self._dimensions(*op.inputs[0]), op.outputs[0].dimensions(self.batch) or ()
        return 1 in before and [each for each in before if each != 1] == [each for each in after if each != 1]

    def _forwarded(self, number: int, op: Op, index: int, inputs: Sequence[int | None]) -> int | None:
        tensor = op.outputs[index]
        for candidate in forwardable(op, index):
            if candidate >= len(op.inputs):
                continue
            buffer = inputs[candidate]
            source, output = op.inputs[candidate]
            given = self.step.ops[source].outputs[output]
            if (
                buffer is not None
                and self.references[buffer] == 1
                and self.step.ops[source].type != "TensorListPopBack"
                and given.dtype == tensor.dtype
                and self.elements[source][output] == self.elements[number][index]
            ):
                return buffer
        return None

    def _scratch(self, number: int, op: Op) -> list[int]:
        """What an operation takes while it runs."""
        before, after = self._temporaries(number, op)
        held = [self._allocate(size, number, temporary=True) for size in before if size]
        workspace = self.workspace(self.step, number, self.batch)
        if isinstance(workspace, Trial):
            workspace = self._try_kernels(workspace, number)
        if workspace:
            held.append(self._allocate(workspace, number, temporary=True, workspace=True))
        return held + [self._allocate(size, number, temporary=True) for size in after if size]

    def _try_kernels(self, trial: Trial, number: int) -> int:
        """Time the kernels one after the other; what the fastest takes."""
        written = self._allocate(trial.written, number, temporary=True, workspace=True)
        for size in trial.in_turn:
            tried = self._allocate(size, number, temporary=True, workspace=True)
            self.program.events.append(Event(tried, 0, number))
        self.program.events.append(Event(written, 0, number))
        return trial.chosen

    def _temporaries(self, number: int, op: Op) -> tuple[Sequence[int], Sequence[int]]:
        """What an operation takes before its scratch memory, and after it."""
        # Most copies are cuDNN's; a CPU's kernels work in place.
        on_gpu = self.step.device == "GPU"
        if op.type not in NEED_MORE_EVERYWHERE and not (on_gpu and op.type.startswith(NEED_MORE)):
            return (), ()
        conv = convolution(self.step, number, self.batch)
        if conv is not None:
            if conv.is_matrix_product:
                return (), ()
            return convolution_temporaries(conv.kind, conv.image_bytes, conv.padded_bytes, conv.filter_bytes)
        input_bytes = [self.sizes[source][output] for source, output in op.inputs]
        if op.type in REDUCTIONS:
            axes = op.attributes.get("axes")
            in_pieces = isinstance(axes, list) and is_reduced_in_pieces(self._dimensions(*op.inputs[0]), axes)
            return (input_bytes[:1] if in_pieces else ()), ()
        if op.type.startswith("CudnnRNN"):
            return recurrent_temporaries(op, self.sizes[number], input_bytes), ()
        return temporaries(op, self.sizes[number][0] if self.sizes[number] else 0, input_bytes), ()

    def _assign(self, op: Op, inputs: Sequence[int | None], number: int) -> None:
        new = inputs[1] if len(inputs) > 1 else None
        if op.variable is None or new is None:
            return
        old = self.variable_buffers[op.variable]
        self.references[new] += 1
        self.variable_buffers[op.variable] = new
        self._release(old, number)

    def _update_in_place(self, op: Op, number: int) -> None:
        """An update copies the whole variable first when somebody still reads it (training_op_helpers.h)."""
        if op.variable is None:
            return
        old = self.variable_buffers[op.variable]
        if self.references[old] > 1:
            new = self._allocate(self.step.variables[op.variable].bytes, number)
            self.references[new] += 1
            self.variable_buffers[op.variable] = new
            self._release(old, number)

    def _new_buffer(self) -> int:
        self.references.append(0)
        return len(self.references) - 1

    def _allocate(self, size: int, number: int, *, temporary: bool = False, workspace: bool = False) -> int:
        buffer = self._new_buffer()
        self.program.events.append(Event(buffer, size, number, temporary, workspace))
        return buffer

    def _release(self, buffer: int | None, number: int) -> None:
        if buffer is None:
            return
        self.references[buffer] -= 1
        if self.references[buffer] == 0:
            self.program.events.append(Event(buffer, 0, number))
