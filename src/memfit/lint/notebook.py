"""A notebook as one Python text, with the way back to its cells."""

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfit.lint import json_spans
from memfit.lint.finding import Broken
from memfit.lint.source import BrokenSourceError, Source, line_starts, parse

# What IPython takes for a command: %magic, !shell, ?help.
_COMMAND = re.compile(r"^(\s*)([%!?].*|[\w.]+\?{1,2}\s*)$")
_ASSIGNED = re.compile(r"^(\s*[\w, ]+=\s*)([%!].*)$")
# Cell magics after which the cell is Python all the same.
_PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "python", "python3", "memit", "mprun", "tb")


@dataclass(frozen=True)
class Cell:
    """A code cell: its number among all cells, from 1, and where its text stands in the joined text."""

    number: int
    start: int
    first_line: int
    lines: int
    text: str


@dataclass(frozen=True)
class Notebook:
    """A notebook that was read: what is linted, and what could not be."""

    source: Source
    raw: str
    cells: tuple[Cell, ...]
    broken: tuple[Broken, ...]

    def cell_at(self, line: int) -> Cell:
        """The cell that holds a line of the joined text."""
        return self.cells[bisect_right([cell.first_line for cell in self.cells], line) - 1]


def read_notebook(path: Path, raw: str) -> Notebook | None:
    """Read a notebook; `None` for one that is not Python.

    Raises:
        BrokenSourceError: If it is no notebook.
    """
    try:
        data = json.loads(raw)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BrokenSourceError(f"not a notebook: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        raise BrokenSourceError("not a notebook of format 4: it has no cells")
    if not _is_python(data.get("metadata")):
        return None
    cells: list[Cell] = []
    linted: list[str] = []
    broken: list[Broken] = []
    start, line = 0, 1
    for number, cell in enumerate(data["cells"], 1):
        text = _text(cell)
        if text is None:
            continue
        readable = _readable(text)
        try:
            parse(readable)
        except BrokenSourceError as error:
            broken.append(Broken(path, error.reason, error.line, number))
            readable = _blank(text)
        count = len(line_starts(text))
        cells.append(Cell(number, start, line, count, text))
        linted.append(readable)
        start += len(readable) + 1
        line += count
    joined = "\n".join(linted)
    firsts = tuple((cell.first_line, cell.number) for cell in cells)
    return Notebook(Source(path, joined, parse(joined), cells=firsts), raw, tuple(cells), tuple(broken))


def _is_python(metadata: Any) -> bool:
    if not isinstance(metadata, dict):
        return True
    language = metadata.get("language_info") or {}
    kernel = metadata.get("kernelspec") or {}
    named = language.get("name") or kernel.get("language") or "python"
    return str(named).lower() in ("python", "ipython")


def _text(cell: Any) -> str | None:
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return None
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _readable(text: str) -> str:
    """A cell without its magics, of the same length line by line."""
    if not re.search(r"[%!?]", text):
        return text
    try:
        parse(text)
    except BrokenSourceError:
        return _neutral(text)
    return text


def _neutral(text: str) -> str:
    lines = text.split("\n")
    first = lines[0].strip()
    if first.startswith("%%"):
        if first[2:].partition(" ")[0] not in _PYTHON_MAGICS:
            return _blank(text)
        lines[0] = _comment(lines[0])
    continues = False
    for index, line in enumerate(lines):
        command, assigned = _COMMAND.match(line), _ASSIGNED.match(line)
        if continues:
            continues = line.rstrip().endswith("\\")
            lines[index] = _comment(line)
        elif command is not None:
            continues = line.rstrip().endswith("\\")
            # Alone in the body of an `if`, a comment would not do.
            lines[index] = f"{command[1]}pass".ljust(len(line)) if command[1] else _comment(line)
        elif assigned is not None:
            continues = line.rstrip().endswith("\\")
            lines[index] = f"{assigned[1]}0".ljust(len(line))
    return "\n".join(lines)


def _comment(line: str) -> str:
    return "#" + line[1:] if line else line


def _blank(text: str) -> str:
    return re.sub(r"[^\r\n]", " ", text)


def with_texts(notebook: Notebook, texts: dict[int, str]) -> str:
    """The notebook's file with other texts in some cells; everything else stays as it is written."""
    raw = notebook.raw
    cells = dict(json_spans.members(raw, json_spans.value_span(raw)[0]))["cells"]
    changes = []
    for number, (start, _) in enumerate(json_spans.items(raw, cells[0]), 1):
        if number in texts:
            span = dict(json_spans.members(raw, start))["source"]
            changes.append((span, _source_value(raw, span, texts[number])))
    for (start, end), value in reversed(changes):
        raw = raw[:start] + value + raw[end:]
    return raw


def _source_value(raw: str, span: json_spans.Span, text: str) -> str:
    """A cell's text as JSON, in the manner of the value it takes the place of."""
    start, end = span
    ascii_only = raw.isascii()
    if raw[start] == '"':
        return json.dumps(text, ensure_ascii=ascii_only)
    spans = list(json_spans.items(raw, start))
    lines = text.splitlines(keepends=True) if text else []
    if not spans or not lines:
        return json.dumps(lines, ensure_ascii=ascii_only)
    before, after = raw[start + 1 : spans[0][0]], raw[spans[-1][1] : end - 1]
    between = raw[spans[0][1] : spans[1][0]] if len(spans) > 1 else f",{before or ' '}"
    return "[" + before + between.join(json.dumps(line, ensure_ascii=ascii_only) for line in lines) + after + "]"
