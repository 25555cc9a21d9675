"""Where a `fit` is, as it is kept for a process that takes over: the model, the position, and what callbacks know."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfit.train.snapshot import Snapshot

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.ndarray, np.generic)
# Not learnt: what Keras says, and how a CSVLogger found its file.
_GIVEN = {"params", "append", "append_header"}
_Known = dict[str, Any]


@dataclass(frozen=True)
class FitState:
    """A `fit` at one moment; can be pickled."""

    snapshot: Snapshot
    epoch: int
    """The epoch it is in, counted from 0 as Keras does."""
    batch: int
    """Batches of that epoch that are done."""
    finished: bool
    callbacks: tuple[_Known, ...]
    """What each of the script's callbacks has learnt, where it is plain data."""
    history: _Known
    """The same of Keras's own history."""


def known(callback: Any) -> _Known:
    """The plain data among a callback's attributes: counters, best values, lists of numbers."""
    attributes = getattr(callback, "__dict__", {})
    return {name: value for name, value in attributes.items() if name not in _GIVEN and _is_kept(value)}


def put_back(callbacks: Sequence[Any], states: Sequence[_Known]) -> None:
    """Give callbacks what they knew. A list the script holds as well stays the same list."""
    for callback, state in zip(callbacks, states, strict=False):
        for name, value in state.items():
            there = getattr(callback, name, None)
            if isinstance(value, list) and isinstance(there, list):
                there[:] = value
            elif isinstance(value, set | dict) and type(there) is type(value):
                there.clear()
                there.update(value)  # type: ignore[arg-type]
            else:
                setattr(callback, name, value)


def _is_kept(value: Any) -> bool:
    try:
        if not _is_plain(value):
            return False
        if not _is_builtin(value):
            # Such as a `defaultdict` of lambdas: plain data in a container that cannot be pickled.
            pickle.dumps(value)
    except Exception:  # noqa: BLE001 (a list that holds itself, or code of the script's classes)
        return False
    return True


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple | set):
        return all(_is_plain(each) for each in value)
    return isinstance(value, _PLAIN)


def _is_builtin(value: Any) -> bool:
    """Whether nothing in it is of a class of the script's, nor an array of objects."""
    if type(value) is dict:
        return all(_is_builtin(each) for pair in value.items() for each in pair)
    if type(value) in (list, tuple, set):
        return all(_is_builtin(each) for each in value)
    return not getattr(getattr(value, "dtype", None), "hasobject", False) and (
        type(value) in _PLAIN or isinstance(value, np.generic)
    )
