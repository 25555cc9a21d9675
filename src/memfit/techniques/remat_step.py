"""What rematerialization does to a step: the insides of a segment are computed again when its gradients are due."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from memfit.trace.reader import layer_of
from memfit.trace.step import Op, Step

# What is there anyway, or may run only once.
_NEVER_AGAIN = frozenset(
    "AssignAddVariableOp AssignSubVariableOp AssignVariableOp Const IteratorGetNext IteratorV2 ReadVariableOp "
    "VarHandleOp".split()
)

_AGAIN = "again/"


@dataclass(frozen=True, eq=False)
class CalledStep:
    """A step whose operations are told apart by the layer call they belong to.

    Args:
        step: The traced step.
        calls: The names of the model's layer calls in the order they run.
    """

    step: Step
    calls: tuple[str, ...]

    @cached_property
    def call_of(self) -> tuple[int | None, ...]:
        """The call of each operation of the forward and backward pass.

        A layer that is called twice has no call of its own: which of its operations belong to which call is not
        known. Operations between layers go with the call before them.
        """
        leaves = [name.rpartition("/")[2] for name in self.calls]
        once = {name: at for at, name in enumerate(leaves) if leaves.count(name) == 1}
        find = layer_of(once)
        names = [find(op.name) if op.part != "update" else None for op in self.step.ops]
        found = [once[name] if name else None for name in names]
        before_a_layer = self.before(at for at, call in enumerate(found) if call is not None and at in self.forward)
        for at in self.order:
            op = self.step.ops[at]
            if found[at] is None and op.layer is None and at in before_a_layer:
                found[at] = max((call for source, _ in op.inputs if (call := found[source]) is not None), default=None)
        for at in self.order:
            if found[at] is None and self.step.ops[at].part == "backward" and self.step.ops[at].type != "AddN":
                found[at] = self._of_unnamed_gradient(at, found)
        return tuple(found)

    def _of_unnamed_gradient(self, at: int, found: list[int | None]) -> int | None:
        """A custom gradient belongs to the call that reads what it reads; the rest of it follows."""
        for source, _ in self.step.ops[at].inputs:
            if not self.step.ops[source].has_samples:
                continue
            if source in self.forward:
                calls = [call for reader in self.followers[source] if (call := found[reader]) is not None]
            elif self.step.ops[source].layer is None and self.step.ops[source].type != "AddN":
                calls = [call for call in [found[source]] if call is not None]
            else:
                continue
            if calls:
                return min(calls)
        return None

    def original(self, operation: Op) -> int:
        """The position of an operation of a step made by `recomputed`, or of the one it is a copy of."""
        return self._positions[operation.name.removeprefix(_AGAIN)]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {op.name: at for at, op in enumerate(self.step.ops)}

    @cached_property
    def forward(self) -> set[int]:
        """The operations of the forward pass: also those it shares with the gradients and that bear their name."""
        return self.before(at for at, op in enumerate(self.step.ops) if op.part == "forward")

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The operations in an order in which they can run."""
        waiting = [len(op.inputs) + len(op.control_inputs) for op in self.step.ops]
        ready = [at for at, count in enumerate(waiting) if not count]
        for at in ready:
            for follower in self.followers[at]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready.append(follower)
        return tuple(ready)

    @cached_property
    def followers(self) -> list[list[int]]:
        """The operations that wait for each operation, once for every edge."""
        found: list[list[int]] = [[] for _ in self.step.ops]
        for at, op in enumerate(self.step.ops):
            for source, _ in op.inputs:
                found[source].append(at)
            for source in op.control_inputs:
                found[source].append(at)
        return found

    def after(self, starts: Iterable[int]) -> set[int]:
        """Everything that waits for one of these operations."""
        found: set[int] = set()
        waiting = list(starts)
        while waiting:
            for follower in self.followers[waiting.pop()]:
                if follower not in found:
                    found.add(follower)
                    waiting.append(follower)
        return found

    def before(self, ends: Iterable[int]) -> set[int]:
        """These operations and everything whose results they need."""
        found: set[int] = set()
        waiting = list(ends)
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += [source for source, _ in self.step.ops[at].inputs]
        return found


def recomputed(called: CalledStep, segments: Sequence[tuple[int, int]]) -> Step:
    """The step with these segments (first call, call behind the last) recomputed in the backward pass.

    Args:
        called: The plain step.
        segments: Which calls, as `remat` will recompute them.
    """
    if not segments:
        return called.step
    ops = list(called.step.ops)
    for start, stop in segments:
        _recompute(called, ops, start, stop)
    otherwise = called.step.otherwise
    if otherwise is not None:
        otherwise = recomputed(CalledStep(otherwise, called.calls), segments)
    return replace(called.step, ops=tuple(ops), otherwise=otherwise)


def _recompute(called: CalledStep, ops: list[Op], start: int, stop: int) -> None:
    """Put copies of a segment's operations behind `ops`, and let the gradients read those."""
    call_of, plain = called.call_of, called.step.ops
    inside = {at for at, call in enumerate(call_of) if call is not None and start <= call < stop}
    again = {at for at in inside & called.forward if plain[at].type not in _NEVER_AGAIN}
    # The gradients of other segments read what was kept at the cut; so does everything in the forward pass.
    readers = sorted(
        {
            at
            for source in again
            for at in called.followers[source]
            if at not in called.forward and (at in inside or call_of[at] is None)
        }
    )
    copied = _needed(plain, again, readers)
    if not copied:
        return
    place = {at: len(ops) + number for number, at in enumerate(copied)}
    waits_for = _gradients_from_behind(called, inside)
    for at in copied:
        op = plain[at]
        inputs = tuple((place.get(source, source), output) for source, output in op.inputs)
        first = not any(source in place for source, _ in op.inputs)
        ops.append(
            replace(
                op,
                name=f"{_AGAIN}{op.name}",
                inputs=inputs,
                control_inputs=waits_for if first else (),
                part="backward",
            )
        )
    for at in readers:
        inputs = tuple((place.get(source, source), output) for source, output in ops[at].inputs)
        ops[at] = replace(ops[at], inputs=inputs)


def _needed(plain: Sequence[Op], again: set[int], readers: Iterable[int]) -> list[int]:
    """The operations whose results the readers need, in order."""
    found: set[int] = set()
    waiting = [source for at in readers for source, _ in plain[at].inputs if source in again]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += [source for source, _ in plain[at].inputs if source in again]
    return sorted(found)


def _gradients_from_behind(called: CalledStep, inside: set[int]) -> tuple[int, ...]:
    """What flows back into a segment: gradients its own gradients read that depend on none of them."""
    ops = called.step.ops
    # Constants and shapes that one layer's gradients need may serve all layers; what has samples is the layer's own.
    own = [at for at in inside - called.forward if ops[at].has_samples]
    after = called.after(own)
    elsewhere = called.forward | inside | after
    found = {
        source
        for at in own
        for source in (*(source for source, _ in ops[at].inputs), *ops[at].control_inputs)
        if ops[source].has_samples and source not in elsewhere
    }
    return tuple(sorted(found))
