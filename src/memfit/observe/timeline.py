"""The allocations of one step as a timeline: who holds how much when, and what is there at the peak."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memfit.observe.events import Kind, Part, PeakTensor, Phase, Point, Timeline, TimelineOp
from memfit.observe.profiler import Allocation, Profile
from memfit.trace.reader import layer_of, part_of

MOST_POINTS = 4000
MOST_AT_PEAK = 1000
_KINDS: dict[Part, Kind] = {"forward": "activations", "backward": "gradients", "update": "other", "other": "other"}
# Names that belong to a step: traced functions are inlined under the names of their calls.
_IN_A_STEP = "/"
_UNNAMED = "not named by TensorFlow", ""
_COMPILED = "the step compiled by XLA", "XLA"


@dataclass(frozen=True)
class Held:
    """A variable, which is in memory before the step begins."""

    name: str
    layer: str | None
    bytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Names:
    """What tells an operation's layer and part from its name."""

    layer: Callable[[str], str | None]
    part: Callable[[str], Part]
    variables: tuple[Held, ...] = ()
    compiled: bool = False
    """Whether XLA compiled the step, which then names nothing."""


def names_of(model: Any, phase: Phase) -> Names:
    """How to read the names of a model's operations."""
    # A model that only predicts need not be compiled.
    optimizer = getattr(model, "optimizer", None)
    find_part = part_of(getattr(optimizer, "name", None) if phase == "train" else None)

    def part(operation: str) -> Part:
        # What reads and prepares the data has no scope: `GatherV2`, not `StatefulPartitionedCall/...`.
        return find_part(operation) if _IN_A_STEP in operation else "other"

    layers = [layer.name for layer in model._flatten_layers(include_self=False)]
    variables = {id(each): each for each in (*model.variables, *getattr(optimizer, "variables", ()))}
    owner = _variable_owner(model, frozenset(layers))
    held = tuple(
        Held(each.path, owner(each.path), _bytes(each), tuple(each.shape), str(each.dtype))
        for each in variables.values()
    )
    return Names(layer_of(layers), part, held, compiled=bool(model.jit_compile))


def make_timeline(
    profile: Profile, names: Names, *, at: float, phase: Phase, step: int, seconds: float | None
) -> Timeline | None:
    """Reduce a profile to a timeline; `None` where no allocation was seen."""
    events = profile.allocations
    if not events:
        return None
    owners = _owners(events)
    ops: dict[str, int] = {}
    described: list[TimelineOp] = []

    def number(op: str) -> int:
        if op not in ops:
            ops[op] = len(described)
            described.append(_described(op, profile, names))
        return ops[op]

    start = events[0].picoseconds
    points: list[Point] = [
        ((event.picoseconds - start) // 1_000_000, event.in_use, number(owner), event.signed_bytes)
        for event, owner in zip(events, owners, strict=True)
    ]
    peak = max(range(len(events)), key=lambda at: events[at].in_use)
    base = events[0].in_use - events[0].signed_bytes
    kept = thinned(points, MOST_POINTS)
    used = sorted({point[2] for point in kept})
    renumbered = {old: new for new, old in enumerate(used)}
    return Timeline(
        at=at,
        phase=phase,
        step=step,
        seconds=seconds,
        base_bytes=base,
        peak_bytes=events[peak].in_use,
        names=tuple(described[old] for old in used),
        points=tuple((when, in_use, renumbered[name], change) for when, in_use, name, change in kept),
        at_peak=_at_peak(events[: peak + 1], base, profile, names),
    )


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many points: of each stretch the highest and the lowest, so that the peak and the shape stay."""
    if len(points) <= most:
        return list(points)
    stretches = most // 2
    kept: list[Point] = []
    for number in range(stretches):
        stretch = range(number * len(points) // stretches, (number + 1) * len(points) // stretches)
        extremes = {max(stretch, key=lambda at: points[at][1]), min(stretch, key=lambda at: points[at][1])}
        kept += [points[at] for at in sorted(extremes)]
    return kept


def _owners(events: Sequence[Allocation]) -> list[str]:
    """The operation of each event; what is freed belongs to the operation that allocated it."""
    allocated_by: dict[int, str] = {}
    owners = []
    for event in events:
        if event.signed_bytes >= 0:
            allocated_by[event.address] = event.op
            owners.append(event.op)
        else:
            owners.append(allocated_by.pop(event.address, ""))
    return owners


def _described(op: str, profile: Profile, names: Names) -> TimelineOp:
    if not op:
        return TimelineOp(*(_COMPILED if names.compiled else _UNNAMED), None, "other")
    # Eager operations are named by their type alone; a name that is new to the profiler ends in the type's.
    op_type = profile.op_types.get(op) or re.sub(r"_\d+$", "", op.rpartition("/")[2])
    return TimelineOp(op, op_type, names.layer(op), names.part(op))


def _at_peak(events: Sequence[Allocation], base: int, profile: Profile, names: Names) -> tuple[PeakTensor, ...]:
    """What is in memory after the last of these events, largest first."""
    live: dict[int, Allocation] = {}
    freed_of_base = 0
    for event in events:
        if event.signed_bytes >= 0:
            live[event.address] = event
        elif live.pop(event.address, None) is None:
            freed_of_base -= event.signed_bytes
    tensors = [_tensor(event, profile, names) for event in live.values()]
    before = base - freed_of_base
    for held in names.variables:
        # Variables may be elsewhere, such as whole numbers in a GPU's host memory: never more than there was.
        if held.bytes <= before:
            before -= held.bytes
            variable = PeakTensor(
                held.name, "Variable", held.layer, "other", "variables", held.bytes, held.shape, held.dtype
            )
            tensors.append(variable)
    if before > 0:
        tensors.append(PeakTensor("held before the step", "", None, "other", "other", before))
    tensors.sort(key=lambda tensor: -tensor.bytes)
    return _bounded(tensors)


def _bounded(tensors: list[PeakTensor]) -> tuple[PeakTensor, ...]:
    rest = tensors[MOST_AT_PEAK - 1 :]
    if len(rest) <= 1:
        return tuple(tensors)
    together = PeakTensor(f"{len(rest)} smaller ones", "", None, "other", "other", sum(each.bytes for each in rest))
    return (*tensors[: MOST_AT_PEAK - 1], together)


def _tensor(event: Allocation, profile: Profile, names: Names) -> PeakTensor:
    described = _described(event.op, profile, names)
    kind: Kind = "workspace" if event.region == "temp" else _KINDS[described.part]
    if described.op_type == _COMPILED[1]:
        # Mostly: what is inside only the estimate knows.
        kind = "activations"
    return PeakTensor(
        described.op, described.op_type, described.layer, described.part, kind, event.signed_bytes, event.shape,
        event.dtype,
    )  # fmt: skip


def _variable_owner(model: Any, layers: frozenset[str]) -> Callable[[str], str | None]:
    """Find the layer in a variable's path: `dense/kernel`, and `adam/dense_kernel_momentum` for the optimizer's."""
    flat = {each.path.replace("/", "_"): each.path for each in model.trainable_variables}

    def find(path: str) -> str | None:
        folder, _, name = path.rpartition("/")
        if folder.rpartition("/")[2] in layers:
            return folder.rpartition("/")[2]
        mine = max((each for each in flat if name.startswith(each)), key=len, default=None)
        return find(flat[mine]) if mine is not None and flat[mine] != path else None

    return find


def _bytes(variable: Any) -> int:
    size = int(variable.value.dtype.size)
    for dimension in variable.shape:
        size *= int(dimension)
    return size
