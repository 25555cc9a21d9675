"""A step as a file, so that what follows the trace can run without TensorFlow and without the model.

Gzipped JSON. A step has thousands of operations and few kinds of tensors, so operations refer to tensors by number.
"""

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memfit.errors import InputError
from memfit.trace.step import Op, Step, Tensor, Variable

_FORMAT = 1


def save_step(step: Step, path: str | Path) -> None:
    """Write a step; the same step always gives the same bytes.

    Raises:
        InputError: If an attribute of an operation would not come back from JSON as it is, as a tuple would not.
    """
    numbers: dict[Tensor, int] = {}
    plain = _plain_step(step, numbers)
    values = {"memfit_step": _FORMAT, "tensors": [_plain_tensor(each) for each in numbers], "step": plain}
    text = json.dumps(values, separators=(",", ":"))
    # No time of writing in the header: it would make equal steps different files.
    Path(path).write_bytes(gzip.compress(text.encode(), mtime=0))


def load_step(path: str | Path) -> Step:
    """Read what `save_step` wrote.

    Raises:
        InputError: If the file is not there, not a step, damaged, or of another format.
    """
    again = "Write it again with save_step(step, path)."
    try:
        stored = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"the step {str(path)!r} cannot be read: {error.strerror}.") from error
    try:
        values = json.loads(gzip.decompress(stored))
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"the step {str(path)!r} is not a whole gzip file: {error}. {again}") from error
    except ValueError as error:
        raise InputError(f"the step {str(path)!r} is not JSON: {error}. {again}") from error
    if not isinstance(values, dict) or "memfit_step" not in values:
        raise InputError(f'{str(path)!r} is not a saved step: it has no "memfit_step". {again}')
    if values["memfit_step"] != _FORMAT:
        received = values["memfit_step"]
        raise InputError(f"the step {str(path)!r} has format {received!r}, this memfit reads {_FORMAT}. {again}")
    try:
        return _step(values["step"], [_tensor(*each) for each in values["tensors"]])
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"the step {str(path)!r} is damaged: {type(error).__name__}: {error}. {again}") from error


def _plain_step(step: Step, numbers: dict[Tensor, int]) -> dict[str, Any]:
    return {
        "phase": step.phase,
        "device": step.device,
        "input_ops": step.input_ops,
        "variables": [(each.name, each.kind, each.bytes, each.drawn) for each in step.variables],
        "ops": [_plain_op(each, numbers) for each in step.ops],
        "otherwise": None if step.otherwise is None else _plain_step(step.otherwise, numbers),
        **({} if step.only_batch is None else {"only_batch": step.only_batch}),
    }


def _plain_op(op: Op, numbers: dict[Tensor, int]) -> tuple[object, ...]:
    if op.attributes and not _survives_json(op.attributes):
        raise InputError(
            f"operation {op.name!r} has attributes that JSON does not give back: {op.attributes!r}. "
            "Use numbers, strings, booleans and lists of them."
        )
    outputs = [numbers.setdefault(each, len(numbers)) for each in op.outputs]
    return (
        *(op.name, op.type, op.inputs, op.control_inputs, outputs),
        *(op.variable, op.attributes, op.layer, op.source, op.part),
    )


def _survives_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def _plain_tensor(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.item_bytes, tensor.shape, tensor.on_host


def _step(values: dict[str, Any], tensors: Sequence[Tensor]) -> Step:
    return Step(
        phase=values["phase"],
        ops=tuple(_op(tensors, *each) for each in values["ops"]),
        variables=tuple(Variable(*each) for each in values["variables"]),
        device=values["device"],
        input_ops=tuple(values["input_ops"]),
        otherwise=None if values["otherwise"] is None else _step(values["otherwise"], tensors),
        only_batch=values.get("only_batch"),
    )


def _op(
    tensors: Sequence[Tensor],
    name: str,
    kind: str,
    inputs: list[tuple[int, int]],
    control_inputs: list[int],
    outputs: list[int],
    *rest: Any,
) -> Op:
    pairs = tuple((op, output) for op, output in inputs)
    return Op(name, kind, pairs, tuple(control_inputs), tuple(tensors[each] for each in outputs), *rest)


def _tensor(dtype: str, item_bytes: int, shape: list[tuple[int, int]] | None, on_host: bool) -> Tensor:
    sizes = None if shape is None else tuple((per_sample, fixed) for per_sample, fixed in shape)
    return Tensor(dtype, item_bytes, sizes, on_host)
