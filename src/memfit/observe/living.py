"""What lives in this process: tensors and the containers that hold them, models, data sets, traced functions."""

import gc
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from inspect import CO_OPTIMIZED
from types import CellType, FrameType, ModuleType
from typing import Any

from memfit.framework import keras, tensorflow
from memfit.observe.oom_message import users_frames

LEAST_MEMBERS = 16
_LOOK_AT_CLOCK = 4096
_FRAMEWORKS = ("tensorflow", "keras", "memfit", "absl", "numpy", "tensorboard")
_DEPTH = 3


@dataclass
class Living:
    """What a look around found; all of it is only borrowed, and must not outlive the look."""

    tensors: list[Any] = field(default_factory=list)
    """Eager tensors with numbers in them: no handles, no strings."""
    containers: list[Any] = field(default_factory=list)
    """Lists, deques and dictionaries that hold tensors, alone or in tuples."""
    models: list[Any] = field(default_factory=list)
    datasets: list[Any] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)


def look_around(seconds: float) -> Living:
    """Go once through what the garbage collector knows, for no longer than this."""
    tf = tensorflow()
    eager: type = import_module("tensorflow.python.framework.ops").EagerTensor
    function: type = import_module("tensorflow.python.eager.polymorphic_function.polymorphic_function").Function
    classes = ((eager, 0), (keras().Model, 1), (tf.data.Dataset, 2), (function, 3), (list, 4), (deque, 4), (dict, 4))
    found = Living()
    kinds: dict[type, int | None] = {}
    places = (found.tensors, found.models, found.datasets, found.functions)
    deadline = time.perf_counter() + seconds
    for number, each in enumerate(gc.get_objects()):
        if number % _LOOK_AT_CLOCK == 0 and time.perf_counter() > deadline:
            break
        own = type(each)
        if own not in kinds:
            kinds[own] = next((kind for base, kind in classes if issubclass(own, base)), None)
        kind = kinds[own]
        if kind is None:
            continue
        if kind < len(places):
            places[kind].append(each)
        elif _may_hold(each, eager):
            found.containers.append(each)
    found.tensors = [tensor for tensor in found.tensors if has_numbers(tensor)]
    return found


def has_numbers(tensor: Any) -> bool:
    """Whether a tensor is data, not a handle or text."""
    return tensor.dtype.name not in ("resource", "variant", "string")


def tensors_in(container: Any) -> list[Any]:
    """The tensors a container holds, alone or in tuples, lists and dictionaries."""
    eager = import_module("tensorflow.python.framework.ops").EagerTensor
    return [each for member in _members(container) for each in _leaves(member, eager) if has_numbers(each)]


def owner_of(thing: Any, ignored: tuple[Any, ...] = ()) -> str | None:
    """Where a user's program holds something: a global's name, an attribute, a local; `None` if only a library does.

    Args:
        thing: What is held.
        ignored: Who holds it for the sake of this look.
    """
    for name, value in _locals_and_globals():
        if value is thing:
            return name
    return _held(thing, "", ignored, _DEPTH)


def _held(thing: Any, path: str, ignored: tuple[Any, ...], depth: int) -> str | None:
    passed = {id(each) for each in ignored}
    modules = {id(vars(module)): name for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)}
    for referrer in gc.get_referrers(thing):
        if id(referrer) in passed or isinstance(referrer, FrameType):
            continue
        if isinstance(referrer, dict):
            key = next((key for key, value in list(referrer.items()) if value is thing), None)
            if id(referrer) in modules:
                name = modules[id(referrer)]
                if _is_users(name):
                    return f"{key}{path}" if name == "__main__" else f"{name}.{key}{path}"
                continue
            owner = _instance_of(referrer)
            if owner is not None and _may_own(owner, str(key)):
                return f"{type(owner).__name__}.{key}{path}"
            if owner is None and depth and (held := _named(referrer, f"[{key!r}]{path}", ignored, depth)):
                return held
        elif isinstance(referrer, CellType | list | tuple):
            if depth and (held := _named(referrer, path, ignored, depth)):
                return held
        elif hasattr(referrer, "__dict__"):
            # Since Python 3.11 an instance has no dictionary until someone asks for it.
            key = next((key for key, value in vars(referrer).items() if value is thing), None)
            if key is not None and _may_own(referrer, key):
                return f"{type(referrer).__name__}.{key}{path}"
    return None


def _named(referrer: Any, path: str, ignored: tuple[Any, ...], depth: int) -> str | None:
    for name, value in _locals_and_globals():
        if value is referrer:
            return f"{name}{path}"
    return _held(referrer, path, (*ignored, ignored), depth - 1)


def _instance_of(attributes: dict[Any, Any]) -> Any | None:
    for referrer in gc.get_referrers(attributes):
        if getattr(referrer, "__dict__", None) is attributes:
            return referrer
    return None


def _may_own(owner: Any, attribute: str) -> bool:
    """What a library keeps for itself is its own affair; what a user hangs onto its objects is not."""
    return _is_users(type(owner).__module__) or (
        not attribute.startswith("_") and isinstance(owner, keras().layers.Layer)
    )


def _is_users(module: str) -> bool:
    if module.partition(".")[0] in _FRAMEWORKS:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or bool(list(users_frames([(file, 0)])))


def _locals_and_globals() -> Iterator[tuple[str, Any]]:
    """The names of the functions that are running, and of the modules they are in."""
    seen: set[int] = set()
    for frame in list(sys._current_frames().values()):
        at: FrameType | None = frame
        while at is not None:
            module = str(at.f_globals.get("__name__", ""))
            if _is_users(module):
                if id(at.f_globals) not in seen:
                    seen.add(id(at.f_globals))
                    yield from [(name if module == "__main__" else f"{module}.{name}", value)
                                for name, value in list(at.f_globals.items())]  # fmt: skip
                # Only a function's are a copy: a module's and a class's are the names themselves.
                if at.f_code.co_flags & CO_OPTIMIZED:
                    shown = at.f_locals
                    pairs = [(f"{name} in {at.f_code.co_name}()", value) for name, value in shown.items()]
                    if isinstance(shown, dict):
                        # Before Python 3.13 it is a copy that the frame would keep.
                        shown.clear()
                    yield from pairs
            at = at.f_back


def _may_hold(container: Any, eager: type) -> bool:
    """Whether the first thing put in, or the last, is a tensor or has one."""
    try:
        if len(container) < LEAST_MEMBERS:
            return False
        members = _members(container)
        ends = [members[0], members[-1]]
    except (RuntimeError, IndexError, TypeError):
        return False  # another thread is at it, or it only looks like a list
    return any(next(_leaves(end, eager), None) is not None for end in ends)


def _members(container: Any) -> list[Any]:
    """What is in a container; a list that C code is about to fill has places with nothing in them, not even `None`."""
    return list(container.values()) if isinstance(container, Mapping) else gc.get_referents(container)


def _leaves(value: Any, eager: type, depth: int = 2) -> Iterator[Any]:
    if type(value) is eager:
        yield value
    elif depth and isinstance(value, tuple | list) and len(value) < LEAST_MEMBERS:
        for each in value:
            yield from _leaves(each, eager, depth - 1)
    elif depth and isinstance(value, dict) and len(value) < LEAST_MEMBERS:
        for each in list(value.values()):
            yield from _leaves(each, eager, depth - 1)
