"""The line of the user's code that made a layer, remembered while a model is being built."""

import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memfit.framework import keras

if TYPE_CHECKING:
    from types import FrameType

# Set on layers; Keras tracks no strings.
_ATTRIBUTE = "_memfit_source"
_FRAMEWORKS = ("keras", "tensorflow")


@contextmanager
def recording_sources() -> Iterator[None]:
    """Give every layer made in the meantime the `file:line` that made it."""
    layer_class = keras().layers.Layer
    original = layer_class.__init__

    @functools.wraps(original)
    def remembering(self: Any, *arguments: Any, **settings: Any) -> None:
        original(self, *arguments, **settings)
        source = _users_line()
        if source is not None:
            setattr(self, _ATTRIBUTE, source)

    layer_class.__init__ = remembering
    try:
        yield
    finally:
        layer_class.__init__ = original


def sources_of(model: Any) -> dict[str, str]:
    """The remembered lines by layer name."""
    return sources_of_layers(model._flatten_layers(include_self=False))


def sources_of_layers(layers: Iterable[Any]) -> dict[str, str]:
    """The same for these layers."""
    found = {}
    for layer in layers:
        source = getattr(layer, _ATTRIBUTE, None)
        if source is not None:
            found[layer.name] = source
    return found


def _users_line() -> str | None:
    """The nearest caller outside the frameworks; none if memfit itself called them."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "memfit":
            return None
        if package not in _FRAMEWORKS:
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None
