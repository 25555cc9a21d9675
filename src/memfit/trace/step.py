"""A step as data: operations, tensors whose sizes follow the batch, variables. Needs no TensorFlow.

A dimension is a pair `(per_sample, fixed)`: its size at batch `b` is `per_sample * b + fixed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Dimension = tuple[int, int]
Phase = Literal["train", "evaluate", "predict"]
Part = Literal["forward", "backward", "update"]
VariableKind = Literal["parameter", "state", "optimizer", "metric", "seed", "other"]

AHEAD = "_turns_ahead"
"""Attribute of an operation whose results of all turns of a loop are summed up: how many may wait to be added, and how
many loops may run at the same time."""
REDUCTIONS = frozenset(("Sum", "Mean", "Max", "Min", "Prod", "All", "Any"))
"""Operations whose second input says over which dimensions."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What an operation puts out."""

    dtype: str
    item_bytes: int
    shape: tuple[Dimension, ...] | None
    """`None` where the size is not known."""
    on_host: bool = False
    """Whether it lives in host memory even when the operation runs on a GPU."""

    def elements(self, batch: int) -> int | None:
        """How many elements it has at a batch size."""
        if self.shape is None:
            return None
        count = 1
        for per_sample, fixed in self.shape:
            count *= per_sample * batch + fixed
        return count

    def bytes(self, batch: int) -> int | None:
        """How many bytes it takes at a batch size."""
        count = self.elements(batch)
        return None if count is None else count * self.item_bytes

    def dimensions(self, batch: int) -> tuple[int, ...] | None:
        """Its shape at a batch size."""
        if self.shape is None:
            return None
        return tuple(per_sample * batch + fixed for per_sample, fixed in self.shape)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation, in the order of the graph."""

    name: str
    type: str
    inputs: tuple[tuple[int, int], ...]
    """Operation and output index of each data input."""
    control_inputs: tuple[int, ...]
    outputs: tuple[Tensor, ...]
    variable: int | None = None
    """The variable it reads or writes."""
    attributes: dict[str, object] = field(default_factory=dict)
    """The few attributes that decide what a kernel allocates."""
    layer: str | None = None
    source: str | None = None
    """The user's line that made it, as `file:line`."""
    part: Part = "forward"

    @property
    def has_samples(self) -> bool:
        """Whether any of its outputs grows with the batch."""
        return any(per_sample for tensor in self.outputs for per_sample, _ in tensor.shape or ())


@dataclass(frozen=True, slots=True)
class Variable:
    """State that stays between steps."""

    name: str
    kind: VariableKind
    bytes: int
    drawn: bool = False
    """Whether its first value is drawn at random, which takes more memory than filling it."""


@dataclass(frozen=True)
class Step:
    """One step of a model, as the executor will see it."""

    phase: Phase
    ops: tuple[Op, ...]
    variables: tuple[Variable, ...]
    device: Literal["GPU", "CPU"]
    input_ops: tuple[int, ...]
    """The operations whose outputs are the batch."""
    otherwise: "Step | None" = None
    """The same step when its conditions turn out false: gradients only accumulated, or not finite."""
    only_batch: int | None = None
    """The one batch size its sizes hold for; `None` where they follow the batch."""

    @property
    def has_loops(self) -> bool:
        """Whether it keeps tensors of each turn of a loop, as a recurrent layer without cuDNN does."""
        return any(op.type == "TensorListPushBack" for op in self.ops)

    @property
    def unknown_sizes(self) -> tuple[Op, ...]:
        """Operations with an output on the device whose size is not known."""
        return tuple(op for op in self.ops if any(each.shape is None and not each.on_host for each in op.outputs))


def variable_bytes(variables: Sequence[Variable], kind: VariableKind) -> int:
    """The bytes of all variables of one kind."""
    return sum(variable.bytes for variable in variables if variable.kind == kind)
