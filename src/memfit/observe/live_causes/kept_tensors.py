"""Lists, histories and attributes that hold on to tensors."""

from collections.abc import Iterator
from typing import Any

from memfit.observe.events import Finding
from memfit.observe.live_causes.view import View, tensor_bytes
from memfit.observe.living import owner_of, tensors_in
from memfit.units import MIB, format_size

# A history has one entry a step or an epoch; a handful of tensors in a list is anyone's right.
_SCALARS, _ARRAYS, _PREDICTIONS = 50, 32, 16
_LEAST_ARRAYS, _LEAST_PREDICTIONS = 16 * MIB, MIB
_MOST_LOOKED_AT = 8


def find(view: View) -> Iterator[Finding]:
    """The largest containers of tensors that belong to the user's program."""
    held = [(sum(map(tensor_bytes, tensors)), each, tensors) for each in view.living.containers
            if (tensors := tensors_in(each))]  # fmt: skip
    outputs = _output_shapes(view)
    said: set[str] = set()
    for size, container, tensors in sorted(held, key=lambda item: -item[0])[:_MOST_LOOKED_AT]:
        kind = _kind(tensors, size, outputs)
        if kind is None or kind in said:
            continue
        where = owner_of(container, (view.living.containers, held, tensors))
        if where is None:
            continue
        said.add(kind)
        yield _finding(view, kind, where, type(container).__name__, tensors, size)


def _kind(tensors: list[Any], size: int, outputs: set[tuple[int | None, ...]]) -> str | None:
    rows = [tensor for tensor in tensors if tensor.shape.rank]
    predicted = [tensor for tensor in rows if tuple(tensor.shape[1:]) in outputs]
    if len(predicted) >= _PREDICTIONS and len(predicted) >= len(rows) / 2 and size >= _LEAST_PREDICTIONS:
        return "predictions-kept"
    if len(tensors) - len(rows) >= _SCALARS or (len(rows) >= _ARRAYS and size >= _LEAST_ARRAYS):
        return "tensors-in-a-list"
    return None


def _output_shapes(view: View) -> set[tuple[int | None, ...]]:
    shapes: set[tuple[int | None, ...]] = set()
    for model in view.models:
        for output in getattr(model, "outputs", None) or ():
            shapes.add(tuple(output.shape[1:]))
    return shapes


def _finding(view: View, kind: str, where: str, container: str, tensors: list[Any], size: int) -> Finding:
    last = tensors[-1]
    devices = sorted({str(tensor.device).rpartition("device:")[2] for tensor in tensors})
    evidence = (
        f"`{where}` is a {container} that holds {len(tensors)} tensors, {format_size(size)}, on {', '.join(devices)}; "
        f"the last has shape {tuple(last.shape)} and type {last.dtype.name}."
    )
    name = where.partition(" in ")[0]
    if kind == "predictions-kept":
        return Finding(
            at=view.at,
            id=kind,
            title=f"`{where}` keeps {len(tensors)} predictions as tensors",
            evidence=evidence,
            cause="Every result of model(...) that is kept as a tensor stays in the device's memory.",
            fix=f"{name}.append(model.predict_on_batch(batch))   # an array in host memory instead of the tensor",
            severity="warning",
        )
    return Finding(
        at=view.at,
        id=kind,
        title=f"`{where}` holds {len(tensors)} tensors",
        evidence=evidence,
        cause="A tensor that is kept in a list or a history keeps its memory, and grows it with every step.",
        fix=f"{name}.append(float(value))   # the number instead of the tensor; value.numpy() for arrays",
        severity="warning" if size >= MIB else "note",
    )
