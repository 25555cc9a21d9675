"""The fields of a frozen dataclass as JSON values, and back with their types checked."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints


def known(facts: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not `None`."""
    return {name: value for name in _names(facts.__class__) if (value := getattr(facts, name)) is not None}


def checked(cls: type, values: Any) -> dict[str, Any]:
    """The values of a class's fields, each of the type it is declared with.

    Raises:
        ValueError: If one is missing that may not be left out, or is of another type.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r:.40} is not an object")
    found = {}
    for name, (allowed, default) in _declared(cls).items():
        value = values.get(name, default)
        if isinstance(value, bool) and bool not in allowed:
            raise ValueError(f"{name} is {value!r}")
        if not isinstance(value, allowed):
            raise ValueError(f"{name} is {value!r:.40}")
        found[name] = tuple(value) if isinstance(value, list) and tuple in allowed else value
    return found


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(cls))


@cache
def _declared(cls: type) -> dict[str, tuple[tuple[type, ...], Any]]:
    """Name to what the file may hold, and what is meant where it holds nothing."""
    hints = get_type_hints(cls)
    defaults = {each.name: each.default for each in fields(cls)}
    found = {}
    for name, default in defaults.items():
        allowed = tuple(_allowed(hints[name]))
        found[name] = allowed, None if default is MISSING and NoneType in allowed else default
    return found


def _allowed(hint: Any) -> list[type]:
    """The types a JSON value of this declaration can have."""
    origin = get_origin(hint)
    if origin is UnionType:
        return [each for part in get_args(hint) for each in _allowed(part)]
    if origin is Literal:
        return [str]
    if origin is tuple:
        return [tuple, list]
    if hint is float:
        return [float, int]
    return [origin or hint]
