"""Steps replayed on a simulated allocator, from the creation of the variables on."""

from collections.abc import Sequence
from dataclasses import dataclass

from memfit.estimation.bfc import BFC, OutOfMemory
from memfit.estimation.lifetimes import Program
from memfit.trace.step import Step

# As `fit` does after warm-up: by then the allocator's chunks have settled. On a CPU they drift for longer.
_WARM_UP_ROUNDS = 2
_COUNTED_ROUNDS, _COUNTED_STEPS = 2, {"GPU": 2, "CPU": 10}


@dataclass(frozen=True)
class Replay:
    """What the allocator reached."""

    first_step_peak: int
    steady_peak: int
    between_steps: int
    """In use while no step runs."""
    reserved: int
    peak_program: int
    peak_event: int
    """Which program, and which of its events, reached the steady peak."""


def replay(
    step: Step,
    programs: Sequence[Program],
    first: Program,
    *,
    limit: int,
    growth: bool,
    resident: int = 0,
    descending: bool = False,
) -> Replay:
    """Create the variables, run the first step and then steady ones.

    Args:
        step: The step, for its variables.
        programs: The memory events of steady steps, run in turn.
        first: The memory events of the first step, which also autotunes.
        limit: The most the allocator may take.
        growth: Whether it grows on demand.
        resident: Bytes of data that lie on the device all the time, such as a dataset made of arrays.
        descending: Whether the driver hands out regions at descending addresses.

    Raises:
        OutOfMemory: If a step does not fit.
    """
    allocator = BFC(limit, growth=growth, descending=descending)
    variables = _create(step, first, allocator, resident)
    allocator.reset_peak()
    variables = _run(first, allocator, variables)
    first_peak = allocator.peak
    for program in [*programs] * _WARM_UP_ROUNDS:
        variables = _run(program, allocator, variables)
    allocator.reset_peak()
    between = allocator.in_use
    at = (0, 0)
    rounds = max(_COUNTED_ROUNDS, _COUNTED_STEPS[step.device] // len(programs))
    for number, program in list(enumerate(programs)) * rounds:
        raised: list[int] = []
        variables = _run(program, allocator, variables, raised)
        at = (number, raised[-1]) if raised else at
    return Replay(max(first_peak, allocator.peak), allocator.peak, between, allocator.reserved, *at)


def _create(step: Step, first: Program, allocator: BFC, resident: int) -> list[int | None]:
    """Keras draws a weight in three buffers, of which the last one stays; everything else is filled in place."""
    addresses: dict[int, int | None] = {}
    model_is_built = False
    for variable, buffer in zip(step.variables, first.variables_at_start, strict=True):
        if not model_is_built and variable.kind == "optimizer":
            allocator.allocate(resident)
            model_is_built = True
        if buffer in addresses:
            continue
        if variable.kind == "optimizer" and step.device == "CPU":
            addresses[buffer] = None  # a constant of the graph, which is no memory of the device there
        elif variable.drawn:
            uniform = allocator.allocate(variable.bytes)
            scaled = allocator.allocate(variable.bytes)
            addresses[buffer] = allocator.allocate(variable.bytes)
            allocator.free(scaled)
            allocator.free(uniform)
        else:
            addresses[buffer] = allocator.allocate(variable.bytes)
    if not model_is_built:
        allocator.allocate(resident)
    for size in first.constants:
        allocator.allocate(size)
    return [addresses[buffer] for buffer in first.variables_at_start]


def _run(
    program: Program, allocator: BFC, variables: list[int | None], raised: list[int] | None = None
) -> list[int | None]:
    """Run one step; the addresses of the variables afterwards. `raised` collects the events that raised the peak."""
    addresses: list[int | None] = [None] * program.buffers
    for buffer, address in zip(program.variables_at_start, variables, strict=True):
        addresses[buffer] = address
    for position, event in enumerate(program.events):
        if event.size:
            before = allocator.peak
            try:
                addresses[event.buffer] = allocator.allocate(event.size)
            except OutOfMemory:
                # Scratch that cannot be had is done without: another kernel is taken (conv_ops_gpu.h).
                if not event.workspace:
                    raise
            if raised is not None and allocator.peak > before:
                raised.append(position)
        else:
            allocator.free(addresses[event.buffer])
    return [addresses[buffer] for buffer in program.variables_at_end]
