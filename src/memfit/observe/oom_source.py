"""Where in the user's files a layer that ran out of memory is made, and which model it belongs to."""

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memfit.framework import keras
from memfit.hardware.out_of_memory import with_causes
from memfit.observe.oom_message import guessed_layer, users_frames
from memfit.trace.reader import layer_of
from memfit.trace.source import sources_of

if TYPE_CHECKING:
    from types import FrameType

# A script, not a data file somebody put code into.
_LONGEST_FILE = 1_000_000


def frames_of(error: BaseException) -> list[tuple[str, int]]:
    """Files and lines of the tracebacks of an error and its causes; the innermost of each comes last."""
    return [(frame.f_code.co_filename, line) for each in with_causes(error) for frame, line in _traceback(each)]


def model_in_frames(error: BaseException, op: str | None) -> Any | None:
    """The one model in the hands of the code that failed; the operation's name tells several apart."""
    if "keras" not in sys.modules:
        return None
    model_class = keras().Model
    found: dict[int, Any] = {}
    for each in with_causes(error):
        for frame, _ in _traceback(each):
            if not list(users_frames([(frame.f_code.co_filename, 0)])):
                continue
            for value in (*frame.f_locals.values(), *frame.f_globals.values()):
                if isinstance(value, model_class):
                    found[id(value)] = value
    models = list(found.values())
    if len(models) > 1 and op is not None:
        models = [model for model in models if layer_of([model.name])(op) is not None]
    return models[0] if len(models) == 1 else None


def find_layer(op: str, model: Any | None) -> str | None:
    """The layer of an operation; guessed from its name where there is no model."""
    if model is None:
        return guessed_layer(op)
    return layer_of(layer.name for layer in model._flatten_layers(include_self=False))(op)


def layer_line(layer: str, model: Any | None, files: Sequence[str]) -> tuple[str, int] | str | None:
    """The user's line that makes a layer: remembered when it was made, or the one that gives it its name."""
    if model is not None and (source := sources_of(model).get(layer)):
        return source
    found = [(file, line) for file in files for line in _lines_that_name(layer, file)]
    return found[0] if len(found) == 1 else None


def _traceback(error: BaseException) -> Iterator[tuple["FrameType", int]]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, step.tb_lineno
        step = step.tb_next


def _lines_that_name(layer: str, file: str) -> Iterable[int]:
    path = Path(file)
    try:
        if path.stat().st_size > _LONGEST_FILE:
            return []
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    return [
        call.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and keyword.value.value == layer
    ]
