"""What a rule is: its documentation, and what it looks for."""

import ast
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from memfit.lint.finding import Fix
from memfit.lint.module import Module

Fixing = Literal["safe", "unsafe", "none"]


@dataclass(frozen=True)
class Problem:
    """A mistake at a node. `instead` is what to write, where it can be said better than for the rule."""

    node: ast.AST
    message: str
    instead: str | None = None
    fix: Fix | None = None


class Rule(ABC):
    """A mistake that is looked for. The docstring of a rule is its page: `memfit lint --explain`."""

    code: ClassVar[str]
    name: ClassVar[str]
    """The bad pattern; it reads well after "allow"."""
    why: ClassVar[str]
    """What it costs, in one or two sentences, below every finding."""
    instead: ClassVar[str]
    """What to write, below every finding."""
    fixing: ClassVar[Fixing] = "none"

    @abstractmethod
    def check(self, module: Module) -> Iterator[Problem]:
        """Look at a file. In doubt, nothing is found."""

    @classmethod
    def page(cls) -> str:
        """The documentation, as Markdown."""
        return f"# {cls.name} ({cls.code})\n\n{inspect.getdoc(cls)}\n"

    @classmethod
    def summary(cls) -> str:
        """The first line of the documentation."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]
