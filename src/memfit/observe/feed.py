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
# Where `fit`, `evaluate` and `predict` keep what the last step gave.
_RESULTS = {"train": ("fit", "logs"), "validation": ("evaluate", "logs"), "predict": ("predict", "batch_outputs")}
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


def looked_up_batch_size() -> int | None:
    """The same, with a look at the first batch where nothing else says it; what Keras feeds is not used up by that."""
    adapter = getattr(_locals().get("epoch_iterator"), "data_adapter", None)
    if (size := batch_size()) is not None:
        return size
    if (batches := getattr(adapter, "_first_batches", None)) is not None:
        return _rows(batches[0])
    if (sequence := getattr(adapter, "py_dataset", None)) is not None:
        return _rows(sequence[0])
    dataset = getattr(adapter, "_dataset", None)
    if dataset is None:
        return None
    sizes = (int(each._batch_size) for each in _with_inputs(dataset) if hasattr(each, "_batch_size"))
    return next(sizes, None) or _rows(next(iter(dataset)))


def order_repeats() -> bool:
    """Whether the `fit` this is called from would be given the same data in the same order again."""
    epoch_iterator = _locals().get("epoch_iterator")
    adapter = getattr(epoch_iterator, "data_adapter", None)
    if hasattr(adapter, "_first_batches") or hasattr(adapter, "py_dataset"):
        return False
    if (dataset := getattr(adapter, "_dataset", None)) is not None:
        return comes_again(dataset)
    return getattr(adapter, "_shuffle", True) is False


def comes_again(dataset: Any) -> bool:
    """Whether a `tf.data` pipeline would give the same data in the same order to another process."""
    return not any("Shuffle" in type(each).__name__ or _has_state(each) for each in _with_inputs(dataset))


def latest_results(phase: str) -> int | None:
    """A number that is another after every step of a phase; `None` where it is not Keras that is calling."""
    function, name = _RESULTS[phase]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == _TRAINER and frame.f_code.co_name == function:
            shown = frame.f_locals
            results = shown.get(name)
            if isinstance(shown, dict):
                shown.clear()
            return id(results)
        frame = frame.f_back
    return None


def element_spec() -> Any | None:
    """What a batch looks like: a structure of shapes and types."""
    return getattr(getattr(_locals().get("epoch_iterator"), "_distributed_dataset", None), "element_spec", None)


def _with_inputs(dataset: Any) -> Iterator[Any]:
    """A pipeline from its end to its beginnings."""
    yield dataset
    for each in dataset._inputs():
        yield from _with_inputs(each)


def _has_state(dataset: Any) -> bool:
    """Whether a stage of a pipeline calls a function that may give something else the next time."""
    graph = getattr(getattr(getattr(dataset, "_map_func", None), "function", None), "graph", None)
    return graph is not None and any(each.op_def.is_stateful for each in graph.get_operations())


def _rows(batch: Any) -> int | None:
    flat = [leaf for _, leaf in _leaves("", batch) if getattr(leaf, "shape", None)]
    return int(flat[0].shape[0]) if flat else None


def signature() -> dict[str, Any]:
    """What the step function is called with: `x`, `y`, ... to something with a shape and a dtype."""
    values = _locals()
    # `predict` calls its function with the batches themselves, `fit` and `evaluate` with their iterator.
    fed = values["data"][-1] if values.get("data") else getattr(values.get("iterator"), "element_spec", None)
    if fed is None:
        fed = getattr(getattr(values.get("epoch_iterator"), "_distributed_dataset", None), "element_spec", None)
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
