"""The whole front of a model: what every budget costs in time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memfit.estimation.regime import Regime
from memfit.techniques.technique import Grade


@dataclass(frozen=True)
class SweepPoint:
    """One way to train that no other beats in both memory and time."""

    budget: int
    """The smallest budget it fits, in bytes: its simulated peak and what is kept free."""
    peak: int
    slowdown: float
    """The time of a step against plain: 0.12 is 12 % more."""
    grade: Grade
    techniques: Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """Peak against step time, fastest first. Every number is predicted."""

    model_name: str
    batch_size: int
    gpu: str
    regime: Regime
    plain_peak: int
    points: tuple[SweepPoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "model": self.model_name,
            "batch_size": self.batch_size,
            "gpu": self.gpu,
            "regime": self.regime,
            "plain_peak_bytes": self.plain_peak,
            "points": [
                {
                    "budget_bytes": point.budget,
                    "predicted_peak_bytes": point.peak,
                    "predicted_slowdown": point.slowdown,
                    "grade": point.grade,
                    "techniques": dict(point.techniques),
                }
                for point in self.points
            ],
        }

    def __str__(self) -> str:
        # The one look to the right: printing is the reporter's work.
        from memfit.report.plan import sweep_text

        return sweep_text(self)

    def _repr_html_(self) -> str:
        from memfit.report.plan import sweep_html

        return sweep_html(self)
