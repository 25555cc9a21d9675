"""Where values stand in the text of a JSON file, so that one of them can be changed and the rest stays as it is."""

import json
import re
from collections.abc import Iterator

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")

Span = tuple[int, int]


def value_span(text: str, start: int = 0) -> Span:
    """Where the value that begins at `start` (or after spaces) begins and ends."""
    start = _skip(text, start)
    return start, _DECODER.raw_decode(text, start)[1]


def members(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """The keys of the object that begins at `start`, each with where its value is."""
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        span = value_span(text, _skip(text, at) + 1)
        yield key, span
        at = _after(text, span[1])


def items(text: str, start: int) -> Iterator[Span]:
    """Where the values of the list that begins at `start` are."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        span = value_span(text, at)
        yield span
        at = _after(text, span[1])


def _after(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
