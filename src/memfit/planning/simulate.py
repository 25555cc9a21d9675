"""The peak of a step for a search: the executor's order and every buffer's life, without the allocator's rounding."""

from dataclasses import dataclass

from memfit.estimation.lifetimes import lifetimes
from memfit.estimation.workspace import Workspace
from memfit.trace.step import Step


@dataclass(frozen=True)
class Simulated:
    """The peak, and the operation that reached it."""

    peak: int
    op: int


def simulate(step: Step, batch: int, workspace: Workspace) -> Simulated:
    """Walk through a step once.

    Args:
        step: The step.
        batch: The batch size.
        workspace: Scratch operations take while they run.
    """
    program = lifetimes(step, batch, workspace=workspace)
    sizes = {
        buffer: variable.bytes for buffer, variable in zip(program.variables_at_start, step.variables, strict=True)
    }
    in_use = sum(sizes.values()) + sum(program.constants)
    found = Simulated(in_use, 0)
    for event in program.events:
        if event.size:
            sizes[event.buffer] = event.size
            in_use += event.size
            if in_use > found.peak:
                found = Simulated(in_use, event.op)
        else:
            in_use -= sizes.pop(event.buffer, 0)
    if step.otherwise is None:
        return found
    return max(found, simulate(step.otherwise, batch, workspace), key=lambda each: each.peak)
