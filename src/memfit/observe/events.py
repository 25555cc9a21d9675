"""The lines of a run record as data, one class per kind. Needs no TensorFlow.

The attributes are the fields of the file: bytes end in `_bytes`, `at` is seconds since the run's start, steps and
epochs are counted from 1, and what is not known is `None`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from memfit.observe.fields import checked, known

SCHEMA = 1
SUFFIX = ".memfit.jsonl"

Phase = Literal["train", "validation", "predict"]
Part = Literal["forward", "backward", "update", "other"]
Kind = Literal["activations", "gradients", "variables", "workspace", "other"]
Severity = Literal["note", "warning", "problem"]
Outcome = Literal["finished", "failed", "interrupted"]
_Line = TypeVar("_Line", bound="Event")
Point = tuple[int, int, int, int]
"""Microseconds from the step's start, bytes in use, index into the names, signed bytes."""


@dataclass(frozen=True)
class Event:
    """One line of a record."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; what is not known is left out."""
        return {"kind": self.kind, **known(self)}

    @classmethod
    def from_dict(cls: type[_Line], values: Mapping[str, Any]) -> _Line:
        """From what `to_dict` returned; fields of a later memfit are ignored.

        Raises:
            ValueError: If a field is missing or is not what it should be.
        """
        return cls(**checked(cls, values))


@dataclass(frozen=True)
class Run(Event):
    """The first line: what runs, and on what."""

    kind = "run"
    memfit_record: int = SCHEMA
    started: str | None = None
    command: list[str] | None = None
    memfit: str | None = None
    tensorflow: str | None = None
    keras: str | None = None
    python: str | None = None
    device: str | None = None
    device_name: str | None = None
    limit_bytes: int | None = None
    growth: bool | None = None
    host_memory_bytes: int | None = None


@dataclass(frozen=True)
class Model(Event):
    """A model that is trained or used, with what was predicted of it."""

    kind = "model"
    at: float
    model: str
    batch_size: int | None = None
    regime: str | None = None
    parameters: int | None = None
    estimate: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None


@dataclass(frozen=True)
class Steps(Event):
    """One step, or in a long run some that follow each other."""

    kind = "steps"
    at: float
    phase: str
    epoch: int | None
    first: int
    count: int
    seconds: float | None = None
    """The mean."""
    slowest_seconds: float | None = None
    in_use_bytes: int | None = None
    """After the last of them."""
    least_in_use_bytes: int | None = None
    peak_bytes: int | None = None
    host_bytes: int | None = None


@dataclass(frozen=True)
class Epoch(Event):
    """One pass over the data, in one phase."""

    kind = "epoch"
    at: float
    epoch: int | None
    phase: str
    steps: int
    seconds: float | None = None
    peak_bytes: int | None = None
    logs: dict[str, Any] | None = None


@dataclass(frozen=True)
class Retrace(Event):
    """A step was traced again."""

    kind = "retrace"
    at: float
    phase: str
    step: int
    function: str
    reason: str
    count: int


@dataclass(frozen=True)
class TimelineOp:
    """An operation that allocates or frees."""

    op: str
    op_type: str
    layer: str | None
    part: Part


@dataclass(frozen=True)
class PeakTensor:
    """Something that is in memory at the peak of a profiled step."""

    op: str
    op_type: str
    layer: str | None
    part: Part
    kind: Kind
    bytes: int
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Timeline(Event):
    """Every allocation of one step."""

    kind = "timeline"
    at: float
    phase: str
    step: int
    seconds: float | None
    base_bytes: int | None
    peak_bytes: int | None
    names: tuple[TimelineOp, ...]
    points: tuple[Point, ...]
    at_peak: tuple[PeakTensor, ...]
    """Largest first."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            **super().to_dict(),
            "names": [known(name) for name in self.names],
            "at_peak": [known(tensor) for tensor in self.at_peak],
        }

    @classmethod
    def from_dict(cls: type[_Line], values: Mapping[str, Any]) -> _Line:
        """From what `to_dict` returned."""
        values = checked(cls, values)
        return cls(
            **{
                **values,
                "names": tuple(TimelineOp(**checked(TimelineOp, each)) for each in values["names"]),
                "points": tuple(_point(each) for each in values["points"]),
                "at_peak": tuple(PeakTensor(**checked(PeakTensor, each)) for each in values["at_peak"]),
            }
        )


@dataclass(frozen=True)
class Fragmentation(Event):
    """How the allocator's free memory is cut up."""

    kind = "fragmentation"
    at: float
    free_bytes: int
    largest_free_bytes: int


@dataclass(frozen=True)
class OutOfMemory(Event):
    """The memory did not suffice."""

    kind = "out_of_memory"
    at: float
    phase: str
    epoch: int | None = None
    step: int | None = None
    message: str | None = None
    op: str | None = None
    layer: str | None = None
    source: str | None = None
    asked_bytes: int | None = None
    in_use_bytes: int | None = None


@dataclass(frozen=True)
class Recovery(Event):
    """What was changed so that the run goes on."""

    kind = "recovery"
    at: float
    phase: str
    what: str
    epoch: int | None = None
    step: int | None = None
    techniques: dict[str, Any] | None = None
    seconds: float | None = None
    restart: bool = False


@dataclass(frozen=True)
class Finding(Event):
    """Something worth changing, with its evidence."""

    kind = "finding"
    at: float
    id: str
    title: str
    evidence: str
    cause: str
    fix: str
    severity: Severity = "note"


@dataclass(frozen=True)
class End(Event):
    """How it ended; a record without it is of a process that died."""

    kind = "end"
    at: float
    outcome: Outcome
    exit_code: int | None = None
    error: str | None = None


def _point(values: Any) -> Point:
    if not isinstance(values, list) or len(values) != 4 or not all(type(value) is int for value in values):
        raise ValueError(f"{values!r:.60} is not a point")
    return (values[0], values[1], values[2], values[3])
