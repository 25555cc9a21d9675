"""A model as a row of pieces between which it may be cut: what each keeps for the backward pass, and what it costs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memfit.estimation.kernels import ALIASES
from memfit.estimation.workspace import Workspace
from memfit.planning.cost import Numbers, StepCost
from memfit.techniques.remat_step import CalledStep


@dataclass(frozen=True)
class Pieces:
    """Bytes and seconds at one batch size. Piece `p` is calls `edges[p]` to `edges[p + 1]`."""

    edges: tuple[int, ...]
    kept: Numbers
    """What the gradients of each piece read of what the forward pass made."""
    in_use: Numbers
    """What its gradients have in use at a time besides."""
    seconds: Numbers
    """The time to compute it again."""
    crossing: Numbers
    """Bytes made in pieces `start` to `stop` and read behind them in the forward pass, for every pair."""
    entering: Numbers
    """Bytes that cross each edge and that no gradient would keep."""

    def __len__(self) -> int:
        return len(self.edges) - 1


def pieces(called: CalledStep, batch: int, cost: StepCost, workspace: Workspace, *, most: int) -> Pieces:
    """Cut a step where least crosses.

    Args:
        called: The plain step.
        batch: The batch size.
        cost: How long operations take.
        workspace: Scratch operations take while they run.
        most: The most pieces.
    """
    tensors = _Tensors(called, batch, workspace)
    count = len(called.calls)
    edges = _edges(called.calls, tensors.across, most)
    piece_of = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    kept, in_use, seconds = (np.zeros(len(edges) - 1) for _ in range(3))
    for piece, *held in zip(piece_of, tensors.kept, tensors.in_use, strict=True):
        kept[piece] += held[0]
        in_use[piece] = max(in_use[piece], held[1])
    for at, (call, time) in enumerate(zip(called.call_of, cost.each(batch), strict=True)):
        if call is not None and at in called.forward:
            seconds[piece_of[call]] += time
    crossing = np.zeros((len(edges), len(edges)))
    entering = np.zeros(len(edges))
    for made, last, size, read_by_gradients in tensors.read_later:
        first = int(piece_of[made])
        behind = len(edges) if last >= count else int(piece_of[last])
        crossing[: first + 1, first + 1 : behind + 1] += size
        if not read_by_gradients:
            entering[first + 1 : behind + 1] += size
    return Pieces(tuple(edges), kept, in_use, seconds, crossing, entering)


class _Tensors:
    """The tensors of the forward pass by the call that makes them, and what their gradients need besides."""

    def __init__(self, called: CalledStep, batch: int, workspace: Workspace) -> None:
        ops, call_of = called.step.ops, called.call_of
        count = len(called.calls)
        self.kept, self.in_use = np.zeros(count), np.zeros(count)
        self.across = np.zeros(count + 1)
        self.read_later: list[tuple[int, int, int, bool]] = []
        readers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for at in called.order:
            for source, output in ops[at].inputs:
                readers[_buffer(called, source, output)].append(at)
        for (source, output), reading in readers.items():
            call = call_of[source]
            size = ops[source].outputs[output].bytes(batch) or 0
            if call is None or source not in called.forward or not ops[source].has_samples or not size:
                continue
            by_gradients = any(at not in called.forward for at in reading)
            if by_gradients:
                self.kept[call] += size
            last = max((self._last(called, at, count) for at in reading if at in called.forward), default=call)
            if last > call:
                self.read_later.append((call, last, size, by_gradients))
                self.across[call + 1 : last + 1] += size
        for at, call in enumerate(call_of):
            if call is not None:
                working_set = _working_set(called, at, batch) + workspace(called.step, at, batch)
                self.in_use[call] = max(self.in_use[call], working_set)

    @staticmethod
    def _last(called: CalledStep, at: int, count: int) -> int:
        """The call of a reader; what belongs to none comes behind all."""
        call = called.call_of[at]
        return count if call is None else call


def _buffer(called: CalledStep, source: int, output: int) -> tuple[int, int]:
    """The tensor whose buffer this one is."""
    ops = called.step.ops
    while ops[source].type in ALIASES and ops[source].inputs and called.call_of[source] is not None:
        source, output = ops[source].inputs[min(output, len(ops[source].inputs) - 1)]
    return source, output


def _working_set(called: CalledStep, at: int, batch: int) -> int:
    """What an operation reads and makes that nobody keeps."""
    ops = called.step.ops
    read = [ops[source].outputs[output] for source, output in ops[at].inputs if source not in called.forward]
    made = () if at in called.forward else ops[at].outputs
    return sum(each.bytes(batch) or 0 for each in (*made, *read) if not each.on_host)


def _edges(calls: Sequence[str], across: Numbers, most: int) -> list[int]:
    """The positions that less crosses than their neighbours, and at most `most` pieces between them.

    A layer that is called twice cannot be named at a cut.
    """
    count = len(calls)
    nameable = [at for at in range(1, count) if calls.count(calls[at]) == calls.count(calls[at - 1]) == 1]
    if len(nameable) < most:
        return [0, *nameable, count]
    lows = [at for at in nameable if across[at] <= min(across[at - 1], across[at + 1])]
    if len(lows) >= most:
        windows = np.array_split(np.array(lows), most - 1)
        lows = [int(window[across[window].argmin()]) for window in windows]
    others = sorted(set(nameable) - set(lows), key=lambda at: across[at])
    return [0, *sorted([*lows, *others[: most - 1 - len(lows)]]), count]
