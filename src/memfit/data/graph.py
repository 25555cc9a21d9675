"""Functions that become graphs as they are written."""

from collections.abc import Callable
from typing import Any, TypeVar

from memfit.framework import tensorflow

Function = TypeVar("Function", bound=Callable[..., Any])


def as_written(function: Function) -> Function:
    """Keep AutoGraph from rewriting a function of ours: it has no Python branches, and rewriting takes seconds."""
    converted: Function = tensorflow().autograph.experimental.do_not_convert(function)
    return converted
