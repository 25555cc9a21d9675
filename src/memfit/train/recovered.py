"""What is told when memory ran out and training continued."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

from memfit.errors import RecoveryWarning

Phase = Literal["train", "validation"]


@dataclass(frozen=True)
class Recovered:
    """One time that memory ran out and training continued."""

    phase: Phase
    step: int
    """Which step of this fit and phase it was, from 1."""
    message: str
    """What TensorFlow said, in a sentence."""
    error: str
    """All it said."""
    techniques: dict[str, Any]
    """What runs from now on."""
    seconds: float
    """What it cost: from the failed step's start until the batch was through."""

    @property
    def what(self) -> str:
        """What was changed."""
        how = ", ".join(f"{name}={value!r}" for name, value in self.techniques.items())
        return f"retried the same batch with {how or 'its state in host memory'}, and training continues with that"

    def __str__(self) -> str:
        return (
            f"out of memory in {self.phase} step {self.step}: {self.what} ({self.seconds:.1f} s). "
            f"TensorFlow said: {self.message}"
        )


def warn(event: Recovered) -> None:
    """Tell whoever looks at warnings."""
    warnings.warn(RecoveryWarning(str(event)), stacklevel=2)
