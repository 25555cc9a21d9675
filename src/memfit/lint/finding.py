"""What is found in a file, as data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Edit:
    """Characters of a file from `start` up to `end` that become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Fix:
    """Edits that belong together; a safe one keeps what the program computes."""

    edits: tuple[Edit, ...]
    safe: bool


@dataclass(frozen=True)
class Place:
    """Where something is: lines and columns count from 1; in a notebook, lines count within a cell."""

    path: Path
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int | None = None

    def __str__(self) -> str:
        cell = "" if self.cell is None else f"cell {self.cell}:"
        return f"{self.path}:{cell}{self.line}:{self.column}"


@dataclass(frozen=True)
class Finding:
    """One mistake: where, what, why it costs memory and what to write instead."""

    code: str
    name: str
    place: Place
    message: str
    why: str
    instead: str
    lines: tuple[str, ...]
    fix: Fix | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        place = self.place
        return {
            "code": self.code,
            "name": self.name,
            "path": str(place.path),
            "cell": place.cell,
            "line": place.line,
            "column": place.column,
            "end_line": place.end_line,
            "end_column": place.end_column,
            "message": self.message,
            "why": self.why,
            "instead": self.instead,
            "fix": None if self.fix is None else ("safe" if self.fix.safe else "unsafe"),
        }


@dataclass(frozen=True)
class Broken:
    """A file, or a cell of a notebook, that could not be read as Python."""

    path: Path
    reason: str
    line: int | None = None
    cell: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"path": str(self.path), "cell": self.cell, "line": self.line, "reason": self.reason}
