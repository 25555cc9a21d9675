"""What `memfit run` was asked for, as it travels to the process that runs the script. Needs no TensorFlow."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from memfit.techniques.technique import Grade
from memfit.units import size_literal

AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class Settings:
    """One run."""

    target: str
    """The script's path, or the module's name."""
    arguments: tuple[str, ...]
    record: str
    """The record's path."""
    is_module: bool = False
    budget: int | None = None
    """Bytes to limit the device to and to plan for."""
    limit: int | None = None
    """Bytes to limit the device to."""
    growth: bool = False
    plan: str = NONE
    """`"auto"`, `"none"` or the path of a saved plan."""
    numerics: Grade = "exact"
    recover: bool = True
    snapshot_seconds: float | None = None
    """How often to take a snapshot at least; `None` is as often as costs little."""
    force: bool = False
    """Whether to replace a record that is there."""
    restarts: int = 0
    """How many times the process was started again."""
    most_restarts: int = 3

    @property
    def device_limit(self) -> int | None:
        """The most each device may use."""
        return self.limit if self.budget is None else self.budget

    @property
    def device_option(self) -> str | None:
        """What was said about the devices, as it was written on the command line."""
        for name in ("budget", "limit"):
            if (size := getattr(self, name)) is not None:
                return f"--{name} {size_literal(size)}"
        return "--growth" if self.growth else None

    def to_json(self) -> str:
        """As text, for a file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """From what `to_json` returned."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "arguments": tuple(values["arguments"])})
