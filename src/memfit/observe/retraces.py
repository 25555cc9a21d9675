"""Noticing that Keras's step function was traced again, and why."""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memfit.observe import feed
from memfit.observe.events import Phase

_FUNCTIONS: dict[Phase, str] = {
    "train": "train_function",
    "validation": "test_function",
    "predict": "predict_function",
}
_NOTHING_CHANGED = (
    "shapes and types are as before: something the step reads has changed, such as a Python value, "
    "a layer's `trainable`, or another data set's structure"
)
_MADE_ANEW = "Keras made the function anew: compile() was called again, or the step itself was changed"

Signature = dict[str, str]


@dataclass(frozen=True)
class Noticed:
    """A function that was traced again."""

    function: str
    reason: str
    count: int
    """How often so far, in this phase of this model."""


@dataclass
class _Watched:
    """The step function of one phase of one model."""

    function: Any = None
    """A weak reference: the model may be deleted."""
    traces: int = 0
    traced_before: bool = False
    """Whether this function, or the one Keras had before it, was traced already."""
    made_anew: bool = False
    retraces: int = 0
    signature: Signature = field(default_factory=dict)


class RetraceWatch:
    """Counts the traces of a model's step functions; asking costs some microseconds where nothing happened."""

    def __init__(self) -> None:
        self._watched: weakref.WeakKeyDictionary[Any, dict[Phase, _Watched]] = weakref.WeakKeyDictionary()

    def look(self, model: Any, phase: Phase) -> Noticed | None:
        """What was noticed since the last look; the very first trace is none again.

        Call it when a pass over the data begins and after each step, from a callback.
        """
        function = step_function(model, phase)
        if function is None:
            return None
        watched = self._watched.setdefault(model, {}).setdefault(phase, _Watched())
        same = watched.function is not None and watched.function() is function
        traces = function.experimental_get_tracing_count()
        if same and traces == watched.traces:
            return None
        watched.made_anew |= not same and watched.traced_before
        watched.function, watched.traces = weakref.ref(function), traces
        if traces == 0:
            return None
        again, watched.traced_before = watched.traced_before, True
        anew, watched.made_anew = watched.made_anew, False
        before, watched.signature = watched.signature, _described(feed.signature())
        if not again:
            return None
        watched.retraces += 1
        reason = _MADE_ANEW if anew else _difference(before, watched.signature) or _NOTHING_CHANGED
        return Noticed(_FUNCTIONS[phase], reason, watched.retraces)


def step_function(model: Any, phase: Phase) -> Any | None:
    """The traced function Keras calls once per execution; `None` where it runs eagerly or is not made yet."""
    function = getattr(model, _FUNCTIONS[phase], None)
    if hasattr(function, "experimental_get_tracing_count"):
        return function
    # For training and evaluation Keras wraps it in a plain function that stops at the end of the data.
    for cell in getattr(function, "__closure__", None) or ():
        if hasattr(cell.cell_contents, "experimental_get_tracing_count"):
            return cell.cell_contents
    return None


def _described(signature: Mapping[str, Any]) -> Signature:
    return {name: f"{_type_name(spec.dtype)} {_shape(spec.shape)}" for name, spec in signature.items()}


def _type_name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))


def _shape(shape: Any) -> str:
    try:
        return str(tuple(shape))
    except ValueError:  # an unknown rank
        return "of any shape"


def _difference(before: Signature, after: Signature) -> str | None:
    """Which arguments changed from what to what, in words."""
    if not before or not after:
        return None
    changes = [
        f"{name} changed from {before[name]} to {after[name]}"
        for name in after
        if name in before and before[name] != after[name]
    ]
    changes += [f"{name} is new: {after[name]}" for name in after if name not in before]
    changes += [f"{name} is gone, it was {before[name]}" for name in before if name not in after]
    return "; ".join(changes) or None
