"""What Keras feeds a step function with, which it tells no callback: read from the `fit` that is calling.

Only read, and only when something is worth saying; where Keras keeps it elsewhere, it is not known.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_TRAINER = "keras.src.backend.tensorflow.trainer"
_WANTED = ("data", "iterator", "epoch_iterator")
_ROLES = ("x", "y", "sample_weight")


def batch_size() -> int | None:
    """The batch size of the `fit`, `evaluate` or `predict` this is called from."""
    for spec in signature().values():
        shape = getattr(spec, "shape", None)
        if shape and shape[0] is not None:
            return int(shape[0])
    adapter = getattr(_locals().get("epoch_iterator"), "data_adapter", None)
    size = getattr(adapter, "batch_size", None)
    return int(size) if size is not None else None


def signature() -> dict[str, Any]:
    """What the step function is called with: `x`, `y`, ... to something with a shape and a dtype."""
    values = _locals()
    # `predict` calls its function with the batches themselves, `fit` and `evaluate` with their iterator.
    fed = values["data"][-1] if values.get("data") else getattr(values.get("iterator"), "element_spec", None)
    if fed is None:
        dataset = getattr(values.get("epoch_iterator"), "_distributed_dataset", None)
        fed = getattr(dataset, "element_spec", None)
    if not isinstance(fed, tuple | list):
        fed = (fed,)
    return {
        path: leaf
        for role, part in zip(_ROLES, fed, strict=False)
        for path, leaf in _leaves(role, part)
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    }


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(f"{path}[{name!r}]", each)
    elif isinstance(value, tuple | list):
        for index, each in enumerate(value):
            yield from _leaves(f"{path}[{index}]", each)
    else:
        yield path, value


def _locals() -> Mapping[str, Any]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == _TRAINER:
            shown = frame.f_locals
            wanted = {name: shown.get(name) for name in _WANTED}
            if isinstance(shown, dict):
                # Before Python 3.13 it is a copy that the frame would keep, and with it a batch in memory.
                shown.clear()
            return wanted
        frame = frame.f_back
    return {}
