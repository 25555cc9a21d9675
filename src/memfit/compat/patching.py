"""Functions of other libraries replaced for one thread, for a while."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

_LOCK = threading.Lock()


@dataclass
class _Patch:
    """A function that is replaced: other threads, and what runs after the last one left, get the original."""

    original: Callable[..., Any]
    dispatch: Callable[..., Any] = field(init=False)
    entered: int = 0
    local: threading.local = field(default_factory=threading.local)

    def __post_init__(self) -> None:
        @wraps(self.original)
        def dispatch(*args: Any, **kwargs: Any) -> Any:
            return self.current(*args, **kwargs)

        self.dispatch = dispatch

    @property
    def current(self) -> Callable[..., Any]:
        """What a call in this thread runs."""
        return self.stack[-1] if self.stack else self.original

    @property
    def stack(self) -> list[Callable[..., Any]]:
        """The replacements of this thread, innermost last."""
        found: list[Callable[..., Any]] = self.local.__dict__.setdefault("stack", [])
        return found


_PATCHES: dict[tuple[int, str], _Patch] = {}


@contextmanager
def patched(owner: Any, name: str, replacement: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Replace a function of a module in this thread.

    Other threads call the original at the same time. The module has exactly the original again as soon as no thread is
    inside.

    Args:
        owner: The module.
        name: The function's name in it.
        replacement: From the function as it was to the function that is called instead.

    Example:
        ```python
        with patched(math, "sqrt", lambda original: lambda x: original(abs(x))):
            math.sqrt(-4.0)
        ```
    """
    key = id(owner), name
    with _LOCK:
        patch = _PATCHES.get(key)
        if patch is None:
            patch = _PATCHES[key] = _Patch(getattr(owner, name))
            setattr(owner, name, patch.dispatch)
        patch.entered += 1
    try:
        patch.stack.append(replacement(patch.current))
        try:
            yield
        finally:
            patch.stack.pop()
    finally:
        with _LOCK:
            patch.entered -= 1
            if not patch.entered:
                del _PATCHES[key]
                # Somebody may have put another function on top, which is not ours to remove.
                if getattr(owner, name) is patch.dispatch:
                    setattr(owner, name, patch.original)
