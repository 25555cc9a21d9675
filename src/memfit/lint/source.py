"""A Python file as text, tree and positions."""

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from memfit.lint.finding import Place

# What Python takes for the end of a line; str.splitlines knows more of them.
_LINE_END = re.compile(r"\r\n|\r|\n")
# A file without one of these words cannot hold a mistake that is known here.
_WORTH_PARSING = re.compile(rb"tensorflow|keras")


class BrokenSourceError(Exception):
    """A file or a cell that is no Python, with the line where it stops to be some."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(frozen=True)
class Source:
    """Text that was parsed. For a notebook it is the text of all code cells."""

    path: Path
    text: str
    tree: ast.Module
    encoding: str = "utf-8"
    cells: tuple[tuple[int, int], ...] = ()
    """For a notebook: the first line of each code cell, and the cell's number."""

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The offset at which each line begins."""
        return line_starts(self.text)

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its end."""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].rstrip("\r\n")

    def column(self, line: int, byte_column: int) -> int:
        """Characters before a position: a tree counts bytes."""
        text = self.line(line)
        if text.isascii():
            return byte_column
        return len(text.encode("utf-8", errors="replace")[:byte_column].decode("utf-8", errors="replace"))

    def offset(self, line: int, byte_column: int) -> int:
        """The offset of a position of the tree in the text."""
        return self.starts[line - 1] + self.column(line, byte_column)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node's text starts and ends."""
        line, column, end_line, end_column = position(node)
        return self.offset(line, column), self.offset(end_line, end_column)

    def segment(self, node: ast.AST) -> str:
        """A node as it is written."""
        start, end = self.span(node)
        return self.text[start:end]

    def cell_at(self, line: int) -> tuple[int, int] | None:
        """The first line and the number of the cell that holds a line; `None` outside of notebooks."""
        return self.cells[bisect_right(self.cells, (line, len(self.text))) - 1] if self.cells else None

    def where(self, node: ast.AST) -> str:
        """The line of a node, in words."""
        line = position(node)[2] if isinstance(node, ast.Call) else position(node)[0]
        cell = self.cell_at(line)
        return f"line {line}" if cell is None else f"line {line - cell[0] + 1} of cell {cell[1]}"

    def place(self, node: ast.AST) -> Place:
        """Where a node is, for people; in a notebook, within its cell."""
        line, column, end_line, end_column = position(node)
        cell = self.cell_at(line)
        shift, number = (0, None) if cell is None else (cell[0] - 1, cell[1])
        return Place(
            self.path,
            line - shift,
            self.column(line, column) + 1,
            end_line - shift,
            self.column(end_line, end_column) + 1,
            number,
        )


def line_starts(text: str) -> tuple[int, ...]:
    """The offset at which each line begins."""
    return (0, *(match.end() for match in _LINE_END.finditer(text)))


def position(node: ast.AST) -> tuple[int, int, int, int]:
    """Line, byte column, last line and last byte column of a node."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    end_line, end_column = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
    return line, column, line if end_line is None else end_line, column if end_column is None else end_column


def worth_parsing(data: bytes) -> bool:
    """Whether a file can hold a mistake at all."""
    return _WORTH_PARSING.search(data) is not None


def decode(data: bytes) -> tuple[str, str]:
    """The text of a Python file and its encoding, as Python itself decides on it.

    Raises:
        BrokenSourceError: If the file is not what it says it is.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise BrokenSourceError(f"its encoding is not the declared one: {reason}") from error


def parse(text: str) -> ast.Module:
    """The tree of a text.

    Raises:
        BrokenSourceError: If it is no Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in somebody's string is not for us to say
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            tree = compile(text, "<source>", "exec", flags, dont_inherit=True)
    except SyntaxError as error:
        raise BrokenSourceError(f"syntax error: {error.msg}", error.lineno) from error
    except ValueError as error:  # NUL bytes, before Python 3.12
        raise BrokenSourceError(str(error)) from error
    except (RecursionError, MemoryError) as error:
        raise BrokenSourceError("nested too deeply to be parsed") from error
    if not isinstance(tree, ast.Module):
        raise BrokenSourceError("no module")
    return tree


def read_script(path: Path, data: bytes) -> Source:
    """A Python file that was read.

    Raises:
        BrokenSourceError: If it is no Python.
    """
    text, encoding = decode(data)
    return Source(path, text, parse(text), encoding)
