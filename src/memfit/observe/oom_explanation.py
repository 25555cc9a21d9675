"""The explanation of an out-of-memory error, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memfit.estimation.phases import Peak
from memfit.observe.events import OutOfMemory
from memfit.planning.plan import Plan
from memfit.trace.step import Part


@dataclass(frozen=True)
class OomExplanation:
    """Why memory ran out, and what would make it fit. What could not be found is `None`, shown as "unknown"."""

    message: str
    """The allocator's own sentence."""
    error: str
    """The class of the error."""
    host: bool
    """Whether it was the host's memory, not the device's."""
    asked_bytes: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    op: str | None = None
    op_type: str | None = None
    layer: str | None = None
    part: Part | None = None
    compiled: bool = False
    """Whether XLA compiled the step: then all its temporaries are one request, and no single layer's."""
    source: str | None = None
    """The user's line that makes the layer."""
    called_at: str | None = None
    """The user's line that was running."""
    device: str | None = None
    in_use_bytes: int | None = None
    """Now, after the error: most of what was held has been freed."""
    peak_bytes: int | None = None
    """The most that was in use since the last reset."""
    limit_bytes: int | None = None
    fragmented: bool | None = None
    """Whether so much was free, but not in one piece; `None` where it cannot be told."""
    model: str | None = None
    batch_size: int | None = None
    predicted_peak: Peak | None = None
    predicted_bytes: Mapping[str, int] | None = None
    """What is in memory at the predicted peak, by kind."""
    largest: tuple[Mapping[str, Any], ...] = ()
    """The largest tensors there."""
    plan: Plan | None = field(default=None, repr=False)
    """What would make it fit."""
    why_no_plan: str | None = None
    command: str | None = None
    """What to type next where there is no plan."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        peak = self.predicted_peak
        return {
            "message": self.message,
            "error": self.error,
            "host": self.host,
            "asked_bytes": self.asked_bytes,
            "shape": None if self.shape is None else list(self.shape),
            "dtype": self.dtype,
            "op": self.op,
            "op_type": self.op_type,
            "layer": self.layer,
            "part": self.part,
            "compiled": self.compiled,
            "source": self.source,
            "called_at": self.called_at,
            "device": self.device,
            "in_use_bytes": self.in_use_bytes,
            "peak_bytes": self.peak_bytes,
            "limit_bytes": self.limit_bytes,
            "fragmented": self.fragmented,
            "model": self.model,
            "batch_size": self.batch_size,
            "predicted_peak_bytes": None if peak is None else peak.value,
            "predicted_peak_low_bytes": None if peak is None else peak.low,
            "predicted_peak_high_bytes": None if peak is None else peak.high,
            "predicted": None
            if self.predicted_bytes is None
            else {f"{kind}_bytes": size for kind, size in self.predicted_bytes.items()},
            "largest": [dict(tensor) for tensor in self.largest],
            "plan": None if self.plan is None else self.plan.to_dict(),
            "why_no_plan": self.why_no_plan,
            "command": self.command,
        }

    def event(self, *, at: float, phase: str, epoch: int | None = None, step: int | None = None) -> OutOfMemory:
        """As a line of a record; what was in use when it failed is the peak of that step."""
        return OutOfMemory(
            at=at,
            phase=phase,
            epoch=epoch,
            step=step,
            message=self.message,
            op=self.op or self.op_type,
            layer=self.layer,
            source=self.source or self.called_at,
            asked_bytes=self.asked_bytes,
            in_use_bytes=self.in_use_bytes if self.peak_bytes is None else self.peak_bytes,
        )

    def __str__(self) -> str:
        # The one look to the right: printing is the reporter's work.
        from memfit.report.oom import explanation_text

        return explanation_text(self)
