"""A digest of the Python code behind an object: two models of one configuration may still compute different things."""

import hashlib
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

_LIBRARIES = ("keras", "tensorflow", "builtins")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def code_of(objects: Iterable[Any]) -> str:
    """A digest of the code of functions, of the classes of objects, and of functions set on objects themselves.

    Classes and functions of Keras and TensorFlow are left out: their version tells them.

    Args:
        objects: Functions, or objects such as layers, losses and metrics.
    """
    digest = hashlib.sha256()
    for each in objects:
        for part in _parts(each):
            digest.update(part.encode())
    return digest.hexdigest()


def _parts(thing: Any) -> Iterator[str]:
    if isinstance(thing, MethodType):
        thing = thing.__func__
    if isinstance(thing, FunctionType):
        yield _function(thing)
        return
    yield type(thing).__qualname__
    for kind in type(thing).__mro__:
        if kind.__module__.partition(".")[0] not in _LIBRARIES:
            yield from (_function(each) for each in vars(kind).values() if isinstance(each, FunctionType))
    for name, value in vars(thing).items() if hasattr(thing, "__dict__") else ():
        function = value.__func__ if isinstance(value, MethodType) else value
        if isinstance(function, FunctionType):
            yield f"{name} {_function(function)}"


def _function(function: FunctionType) -> str:
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    closed = [repr(each) if isinstance(each, _PLAIN) else type(each).__qualname__ for each in cells]
    inner = [_code(each.__code__) for each in cells if isinstance(each, FunctionType)]
    return f"{function.__qualname__} {_code(function.__code__)} {closed} {inner} {function.__defaults__!r}"


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (reading an empty cell raises)
    except ValueError:
        return False
    return True


def _code(code: CodeType) -> str:
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
