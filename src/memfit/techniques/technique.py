"""What every technique is: how exact it is, what it needs, and how it is put onto a model and taken off again."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Grade = Literal["exact", "close", "any"]
"""`exact`: the same result to rounding; `close`: rounded or normalised differently; `any`: another training."""

GRADES: tuple[Grade, ...] = ("exact", "close", "any")
"""From the strictest on."""


@dataclass(frozen=True)
class Verdict:
    """How exact a technique is for a model, and why."""

    grade: Grade
    why: str


class Technique(Protocol):
    """One way to make a step take less. Each is a module with these functions; the registry names them."""

    def check(self, model: Any, value: Any) -> Verdict:
        """Say how exact it is, without changing anything.

        Args:
            model: A built, compiled Keras model.
            value: What the plan says for this technique.

        Raises:
            InputError: If the model cannot carry it or the value cannot be used.
        """
        ...

    def applied(self, model: Any, value: Any) -> AbstractContextManager[None]:
        """Change how the model trains for the duration; it comes out as it went in, whatever happened."""
        ...
