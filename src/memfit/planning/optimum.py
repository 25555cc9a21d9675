"""How far a rematerialization plan is from the best there is, proved by a solver on a small graph.

After Checkmate (Jain et al., MLSys 2020): time is cut into stages, each of which runs one forward or backward call for
the first time and may run earlier forward calls again. Gradients are made once and held until they are read.

Checkmate's FREE variables are replaced by what is held between two readers of an output: the same schedules, but once
it is known what runs, what is held follows, so only the runs have to be whole numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from memfit.errors import BrokenEnvironmentError, InputError, MemfitError

# Of the time of one forward pass; HiGHS's own absolute gap is the same.
_GAP = 1e-6
# How much larger than it has to be the largest part may be, for better cuts. A compromise: on ResNet50, DenseNet121, a
# U-Net and a transformer cut into 12 and 16, 1.05 cuts badly here and there, 1.5 and 2 fit fewer small budgets.
_UNEVEN = 1.25
# What scipy.optimize.milp's `status` means.
_SOLVED, _OUT_OF_TIME, _INFEASIBLE = 0, 1, 2


@dataclass(frozen=True)
class Work:
    """One forward call of a layer, in an order in which they can run."""

    seconds: float
    """Of the forward call."""
    backward_seconds: float
    bytes: int
    """What it puts out, kept or recomputed as one."""
    inputs: tuple[int, ...]
    """The earlier calls it reads."""
    gradient_bytes: int | None = None
    """Each gradient of what it puts out; `None` is as much as that takes itself."""


@dataclass(frozen=True)
class Schedule:
    """What a way to run a training step costs."""

    seconds: float
    peak_bytes: int
    """Outputs and gradients held at a time; nothing else counts."""
    optimal: bool
    """Whether it is proved that none with this peak takes less time."""
    bound_seconds: float
    """No schedule takes less: the time the solver has proved, or that of running everything once."""


def of_segments(work: Sequence[Work], segments: Sequence[tuple[int, int]]) -> Schedule:
    """What it costs to recompute the insides of segments, each once, when the backward pass reaches it.

    Args:
        work: The forward calls.
        segments: The calls `start` to `stop`, without `stop`, of each. What calls behind `stop` read is kept.
    """
    _check(work)
    stages = _keeping_everything(len(work))
    readers, behind = _readers(work), 0
    for start, stop in sorted(segments):
        if not behind <= start < stop <= len(work):
            raise InputError(
                f"segment {(start, stop)} is not possible: segments are pairs of start and stop within the "
                f"{len(work)} calls, not empty, that do not overlap."
            )
        behind = stop
        stages[_backward_stage(work, stop - 1)] = [
            call for call in range(start, stop) if all(reader < stop for reader in readers[call])
        ]
    return _schedule(work, stages)


def optimum(work: Sequence[Work], budget_bytes: int, *, seconds_limit: float = 60.0) -> Schedule | None:
    """The fastest schedule within a peak.

    A dozen calls take about a second to solve, 16 up to half a minute; make larger graphs smaller with `coarsened`.

    Args:
        work: The forward calls.
        budget_bytes: The most that outputs and gradients may take. The solver keeps to it within a millionth.
        seconds_limit: When to stop; the best found so far is returned then, and how much better another could be.

    Returns:
        The schedule; `None` if it is proved that there is none within the budget.

    Raises:
        BrokenEnvironmentError: If SciPy is not installed.
        MemfitError: If the solver has not found any schedule in time.
    """
    _check(work)
    everything_kept = _schedule(work, _keeping_everything(len(work)))
    if everything_kept.peak_bytes <= budget_bytes:
        return everything_kept
    if budget_bytes <= 0:
        return None
    program, ran = _program(work, budget_bytes)
    result = program.solved(seconds_limit)
    if result.status == _INFEASIBLE:
        return None
    if result.x is None:
        raise MemfitError(
            f"the solver found no schedule of {len(work)} calls within {budget_bytes} bytes in {seconds_limit:g} s: "
            f"{result.message} Pass a larger seconds_limit, or make the graph smaller with coarsened(work, most=12)."
        )
    stages = [[call for call, variable in enumerate(row) if result.x[variable] > 0.5] for row in ran]
    found = _schedule(work, stages)
    if result.status == _SOLVED:
        return Schedule(found.seconds, found.peak_bytes, True, found.seconds)
    backward = math.fsum(each.backward_seconds for each in work)
    proved = backward + float(result.mip_dual_bound) * _forward_seconds(work)
    bound = min(found.seconds, max(found.bound_seconds, proved))
    return Schedule(found.seconds, found.peak_bytes, False, bound)


def coarsened(work: Sequence[Work], most: int) -> tuple[list[Work], list[int]]:
    """Merge neighbouring calls, cutting where fewest bytes cross, so that the solver can cope.

    The call before a cut stays alone: it can then be kept without what the calls before it put out. The optimum of the
    merged graph says nothing about schedules that cut elsewhere.

    Args:
        work: The forward calls.
        most: How many may be left.

    Returns:
        The merged calls, and where each starts, with the end behind the last.
    """
    _check(work)
    if most < 1:
        raise InputError(f"most={most} is not possible: at least one call is left.")
    if len(work) <= most:
        return list(work), list(range(len(work) + 1))
    edges = [0, len(work)]
    for cuts in _cuts(work, most):
        alone = {edge for cut in cuts for edge in (cut - 1, cut)}
        refined = sorted({0, len(work), *alone})
        if len(refined) - 1 > most:
            break
        edges = refined
    piece_of = [piece for piece, (start, stop) in enumerate(pairwise(edges)) for _ in range(start, stop)]
    readers = _readers(work)
    return [_merged(work, start, stop, piece_of, readers) for start, stop in pairwise(edges)], edges


def _check(work: Sequence[Work]) -> None:
    for call, each in enumerate(work):
        if wrong := [given for given in each.inputs if not 0 <= given < call]:
            raise InputError(
                f"call {call} reads {wrong}: calls read earlier ones. Give them in an order in which they can run."
            )


def _readers(work: Sequence[Work]) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in work]
    for call, each in enumerate(work):
        for given in set(each.inputs):
            readers[given].append(call)
    return readers


def _forward_seconds(work: Sequence[Work]) -> float:
    return math.fsum(each.seconds for each in work) or 1.0


def _gradient_bytes(work: Work) -> int:
    return work.bytes if work.gradient_bytes is None else work.gradient_bytes


# The memory model. A schedule is the forward calls that run in each stage: one stage for each forward call, then one
# for each backward call, which runs last in its stage.


def _keeping_everything(count: int) -> list[list[int]]:
    return [*([call] for call in range(count)), *([] for _ in range(count))]


def _backward_stage(work: Sequence[Work], call: int) -> int:
    return 2 * len(work) - 1 - call


def _schedule(work: Sequence[Work], stages: Sequence[Sequence[int]]) -> Schedule:
    """The cost of a schedule in which everything is freed as soon as it is not read before it is made again."""
    runs = [0] * len(work)
    for stage in stages:
        for call in stage:
            runs[call] += 1
    seconds = math.fsum(run * each.seconds + each.backward_seconds for run, each in zip(runs, work, strict=True))
    once = math.fsum(each.seconds + each.backward_seconds for each in work)
    return Schedule(seconds, _peak_bytes(work, stages), optimal=seconds <= once, bound_seconds=once)


def _peak_bytes(work: Sequence[Work], stages: Sequence[Sequence[int]]) -> int:
    """The most held at a time, from the last call back to the first."""
    readers = _readers(work)
    sizes: dict[object, int] = {call: each.bytes for call, each in enumerate(work)}
    gradients = {(reader, call) for call in range(len(work)) for reader in readers[call]}
    sizes |= {(reader, call): _gradient_bytes(work[call]) for reader, call in gradients}
    peak, needed = 0, set[object]()
    for stage, forward in reversed(list(enumerate(stages))):
        calls: list[tuple[set[object], set[object]]] = [({call}, set(work[call].inputs)) for call in forward]
        if stage >= len(work):
            call = 2 * len(work) - 1 - stage
            arriving = {(reader, call) for reader in readers[call]}
            calls.append(({(call, given) for given in work[call].inputs}, {call, *work[call].inputs, *arriving}))
        for made, read in reversed(calls):
            peak = max(peak, sum(sizes[each] for each in needed | made | read))
            needed = (needed - made) | read
    return peak


def _gradients_held(work: Sequence[Work], call: int) -> int:
    """The bytes of the gradients made behind a call and read by its backward call or after it."""
    return sum(
        _gradient_bytes(work[given])
        for reader in range(call + 1, len(work))
        for given in set(work[reader].inputs)
        if given <= call
    )


# The same model as a mixed integer program.


@dataclass
class _Program:
    """Variables between 0 and 1, and rows that limit sums of them."""

    costs: list[float] = field(default_factory=list)
    lowest: list[int] = field(default_factory=list)
    highest: list[int] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    entries: list[tuple[int, int, float]] = field(default_factory=list)

    def variable(self, *, cost: float = 0.0, lowest: int = 0, highest: int = 1, whole: bool = False) -> int:
        self.costs.append(cost)
        self.lowest.append(lowest)
        self.highest.append(highest)
        self.whole.append(whole)
        return len(self.costs) - 1

    def at_most(self, limit: float, terms: Iterable[tuple[int, float]]) -> None:
        self.entries.extend((len(self.limits), variable, factor) for variable, factor in terms)
        self.limits.append(limit)

    def covered(self, variable: int, *by: int) -> None:
        """`variable` is at most the sum of the others."""
        self.at_most(0, [(variable, 1), *((other, -1) for other in by)])

    def solved(self, seconds_limit: float) -> Any:
        try:
            optimize, sparse = import_module("scipy.optimize"), import_module("scipy.sparse")
        except ImportError as error:
            raise BrokenEnvironmentError(
                'the best schedule needs SciPy, which is not installed. Install it with: pip install "memfit[solver]"'
            ) from error
        rows, columns, factors = zip(*self.entries, strict=True)
        matrix = sparse.csr_array((factors, (rows, columns)), shape=(len(self.limits), len(self.costs)))
        return optimize.milp(
            np.array(self.costs),
            integrality=np.array(self.whole, int),
            bounds=optimize.Bounds(np.array(self.lowest), np.array(self.highest)),
            constraints=optimize.LinearConstraint(matrix, ub=np.array(self.limits)),
            options={"time_limit": seconds_limit, "mip_rel_gap": _GAP},
        )


def _program(work: Sequence[Work], budget_bytes: int) -> tuple[_Program, list[list[int]]]:
    """The program, and for each stage the variables that say which forward calls run in it."""
    program, count = _Program(), len(work)
    readers = _readers(work)
    total = _forward_seconds(work)
    # In the stage of a forward or backward call nobody needs the outputs of calls behind it.
    reach = [*range(count), *reversed(range(count))]
    ran = [
        [
            program.variable(cost=work[call].seconds / total, lowest=call == stage, whole=True)
            for call in range(last + 1)
        ]
        for stage, last in enumerate(reach)
    ]
    kept = [[program.variable(highest=call != stage) for call in range(last + 1)] for stage, last in enumerate(reach)]
    for stage, last in enumerate(reach):
        backward = stage >= count
        read = {last, *work[last].inputs} if backward else set()
        # For each call what holds its output while another call runs, the backward call as the one behind the last.
        holding: list[list[int]] = []
        for call in range(last + 1):
            program.at_most(1, [(ran[stage][call], 1), (kept[stage][call], 1)])
            held = program.variable()
            program.covered(held, ran[stage][call], kept[stage][call])
            program.covered(ran[stage][call], held)
            during = [kept[stage][call]] * call
            for reader in (each for each in readers[call] if each <= last):
                program.covered(ran[stage][reader], held)
                during += [held] * (reader + 1 - len(during))
                before, held = held, program.variable()
                program.covered(held, before)
            during += [held] * (last + 2 - len(during))
            holding.append(during)
            if call in read:
                program.lowest[held] = 1
            if stage + 1 < len(reach) and call <= reach[stage + 1]:
                program.covered(kept[stage + 1][call], held)
        gradients = _gradients_held(work, last) if backward else 0
        for position in range(last + 1 + backward):
            if position > last:
                gradients += sum(_gradient_bytes(work[given]) for given in set(work[last].inputs))
            program.at_most(
                1 - gradients / budget_bytes,
                [(holding[call][position], work[call].bytes / budget_bytes) for call in range(last + 1)],
            )
    return program, ran


# Making a graph smaller.


def _cuts(work: Sequence[Work], most: int) -> Iterable[list[int]]:
    """Where to cut into one, two and up to `most` parts, so that least crosses.

    No part is much larger than it has to be: otherwise all cuts would be where the outputs are small.
    """
    count = len(work)
    readers = _readers(work)
    crossing = np.zeros(count + 1)
    for call, each in enumerate(work):
        crossing[call + 1 : max(readers[call], default=call) + 1] += each.bytes
    upto = np.cumsum([0, *(each.bytes for each in work)])
    sizes = (upto[None, :] - upto[:, None]).astype(float)
    ahead = np.triu(np.ones_like(sizes, bool), 1)
    for parts in range(1, min(most, count) + 1):
        largest = _through(np.where(ahead, sizes, np.inf), parts, np.maximum)[0]
        costs = np.where(ahead & (sizes <= _UNEVEN * largest), crossing[None, :], np.inf)
        yield _through(costs, parts, np.add)[1]


def _through(costs: np.ndarray[Any, Any], parts: int, joined: np.ufunc) -> tuple[float, list[int]]:
    """The least cost of getting from the first position to the last in a number of parts, and the cuts between."""
    best = np.full(len(costs), np.inf)
    best[0] = 0
    came_from = []
    for _ in range(parts):
        through = joined(best[:, None], costs)
        came_from.append(through.argmin(axis=0))
        best = through.min(axis=0)
    cuts = [len(costs) - 1]
    for origins in reversed(came_from):
        cuts.append(int(origins[cuts[-1]]))
    return float(best[-1]), cuts[-2:0:-1]


def _merged(
    work: Sequence[Work], start: int, stop: int, piece_of: Sequence[int], readers: Sequence[Sequence[int]]
) -> Work:
    inside = work[start:stop]
    inputs = {piece_of[given] for each in inside for given in each.inputs if given < start}
    leaving = [each for each, its in zip(inside, readers[start:stop], strict=True) if any(at >= stop for at in its)]
    return Work(
        seconds=math.fsum(each.seconds for each in inside),
        backward_seconds=math.fsum(each.backward_seconds for each in inside),
        bytes=sum(each.bytes for each in inside),
        inputs=tuple(sorted(inputs)),
        # Gradients inside come and go one by one; only those of what leaves are there at the same time.
        gradient_bytes=sum(_gradient_bytes(each) for each in leaving),
    )
