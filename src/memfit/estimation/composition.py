"""Where the bytes are at the peak: by kind, by layer, the largest tensors, and the step's timeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memfit.estimation.graph import GraphPrediction
from memfit.estimation.xla.compiled import Buffer, CompiledStep
from memfit.trace.reader import layer_of
from memfit.trace.step import Op, Part, Step, VariableKind

Kind = Literal["parameters", "gradients", "optimizer_state", "activations", "workspace", "input_batch", "other"]
KINDS: tuple[Kind, ...] = (
    "parameters",
    "gradients",
    "optimizer_state",
    "activations",
    "workspace",
    "input_batch",
    "other",
)
_VARIABLE_KINDS: dict[VariableKind, Kind] = {
    "parameter": "parameters",
    "state": "parameters",
    "optimizer": "optimizer_state",
}
_PART_KINDS: dict[Part, Kind] = {"forward": "activations", "backward": "gradients", "update": "other"}


@dataclass(frozen=True)
class LiveTensor:
    """A tensor that is in memory at the peak."""

    bytes: int
    kind: Kind
    op: str
    op_type: str
    shape: tuple[int, ...] | None
    dtype: str
    layer: str | None
    source: str | None

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "bytes": self.bytes,
            "kind": self.kind,
            "op": self.op,
            "op_type": self.op_type,
            "shape": None if self.shape is None else list(self.shape),
            "dtype": self.dtype,
            "layer": self.layer,
            "source": self.source,
        }


@dataclass(frozen=True)
class Moment:
    """The most bytes in use while an operation runs."""

    op: str
    part: Part
    in_use: int


@dataclass(frozen=True)
class Composition:
    """What makes up the peak."""

    live: tuple[LiveTensor, ...]
    """Everything in memory at the peak, largest first."""
    rounding: int
    """What the allocator holds beyond what was asked for."""
    timeline: tuple[Moment, ...]

    def breakdown(self) -> dict[Kind, int]:
        """The bytes at the peak by kind; together they are the peak."""
        totals = dict.fromkeys(KINDS, 0)
        for tensor in self.live:
            totals[tensor.kind] += tensor.bytes
        totals["other"] += self.rounding
        return totals

    def by_layer(self) -> dict[str, int]:
        """The bytes at the peak by layer, largest first; what belongs to no layer is left out."""
        totals: dict[str, int] = {}
        for tensor in self.live:
            if tensor.layer:
                totals[tensor.layer] = totals.get(tensor.layer, 0) + tensor.bytes
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


def compose_graph(prediction: GraphPrediction, batch: int, peak: int, resident: int) -> Composition:
    """Walk a replayed step up to its peak."""
    step, program = prediction.step, prediction.program
    sizes = {buffer: step.variables[number].bytes for number, buffer in enumerate(program.variables_at_start)}
    owners: dict[int, int] = {}
    scratch: set[int] = set()
    live = set(sizes)
    at_peak: set[int] = set()
    moments: list[Moment] = []
    base = sum(sizes.values()) + sum(program.constants)
    in_use = base
    for position, event in enumerate(program.events):
        if event.size:
            sizes[event.buffer], owners[event.buffer] = event.size, event.op
            live.add(event.buffer)
            in_use += event.size
            if event.temporary:
                scratch.add(event.buffer)
        else:
            live.discard(event.buffer)
            in_use -= sizes[event.buffer]
        op = step.ops[event.op]
        if moments and moments[-1].op == op.name:
            moments[-1] = Moment(op.name, op.part, max(in_use, moments[-1].in_use))
        else:
            moments.append(Moment(op.name, op.part, in_use))
        if position == prediction.replay.peak_event:
            at_peak = set(live)
    variables = {buffer: number for number, buffer in enumerate(program.variables_at_start)}
    tensors = []
    for buffer in at_peak:
        if buffer in variables:
            tensors.append(_variable(step, variables[buffer]))
        else:
            tensors.append(_tensor(step, owners[buffer], sizes[buffer], batch, buffer in scratch))
    if resident:
        tensors.append(LiveTensor(resident, "input_batch", "the dataset's own arrays", "", None, "", None, None))
    tensors.sort(key=lambda tensor: -tensor.bytes)
    return Composition(tuple(tensors), peak - sum(tensor.bytes for tensor in tensors), tuple(moments))


def compose_xla(
    compiled: CompiledStep | None, parts: dict[str, int], variables: dict[Kind, int], layers: Sequence[str]
) -> Composition:
    """The same for a compiled step: its variables, its batch, and the values in its block of temporaries."""
    tensors = [
        LiveTensor(size, kind, f"all {kind.replace('_', ' ')}", "", None, "", None, None)
        for kind, size in variables.items()
        if size
    ]
    batch = parts["batch"] + parts["resident data"]
    tensors.append(LiveTensor(batch, "input_batch", "the batch", "", None, "", None, None))
    rest = parts["temporaries"]
    for buffer in compiled.at_peak if compiled else ():
        tensors.append(_buffer(buffer, layers))
        rest -= buffer.size
    if compiled is None:
        tensors.append(LiveTensor(rest, "activations", "temporaries, not compiled", "", None, "", None, None))
        rest = 0
    tensors.sort(key=lambda tensor: -tensor.bytes)
    known = sum(variables.values())
    rounding = parts["variables"] - known + parts["outputs"] + parts["allocator rounding"] + rest
    timeline = tuple(
        Moment(each.instruction, "forward", each.live + parts["variables"] + batch)
        for each in (compiled.timeline if compiled else ())
    )
    return Composition(tuple(tensors), rounding, timeline)


def _variable(step: Step, number: int) -> LiveTensor:
    variable = step.variables[number]
    kind = _VARIABLE_KINDS.get(variable.kind, "other")
    return LiveTensor(
        variable.bytes, kind, variable.name, "Variable", None, "", _layer_of_variable(variable.name), None
    )


def _layer_of_variable(path: str) -> str | None:
    parts = path.split("/")
    return parts[-2] if len(parts) > 1 else None


def _tensor(step: Step, index: int, size: int, batch: int, scratch: bool) -> LiveTensor:
    op = step.ops[index]
    output = op.outputs[0] if op.outputs else None
    return LiveTensor(
        bytes=size,
        kind="workspace" if scratch else _kind(op),
        op=op.name,
        op_type=op.type,
        shape=output.dimensions(batch) if output and not scratch else None,
        dtype=output.dtype if output else "",
        layer=op.layer,
        source=op.source,
    )


def _kind(op: Op) -> Kind:
    return "input_batch" if op.type == "IteratorGetNext" else _PART_KINDS[op.part]


def _buffer(buffer: Buffer, layers: Sequence[str]) -> LiveTensor:
    workspace = buffer.opcode == "custom-call" and buffer.shape.dtype in ("u8", "s8")
    backward = buffer.op_name.startswith("gradient")
    kind: Kind = "workspace" if workspace else "gradients" if backward else "activations"
    layer = layer_of(layers)(buffer.op_name)
    return LiveTensor(
        buffer.size, kind, buffer.op_name or buffer.instruction, buffer.opcode, tuple(buffer.shape.dimensions),
        buffer.shape.dtype, layer, buffer.source or None,
    )  # fmt: skip
