"""What is predicted of a plan: whether it fits, what it takes and costs, what else was tried."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from memfit.estimation.phases import Peak
from memfit.estimation.regime import Regime
from memfit.techniques.technique import GRADES, Grade


@dataclass(frozen=True)
class Contribution:
    """One technique of the plan, put on top of those before it."""

    technique: str
    why: str
    grade: Grade
    peak: int
    """The simulated peak with it, in bytes."""
    slowdown: float
    """The time of a step against plain, with it: 0.12 is 12 % more."""


@dataclass(frozen=True)
class Rejected:
    """Something else that was tried, and why it is not the plan."""

    what: str
    why: str
    peak: int | None = None
    slowdown: float | None = None


@dataclass(frozen=True)
class Prediction:
    """The plan's answer. Every number is predicted."""

    feasible: bool
    model_name: str
    batch_size: int
    budget: int
    numerics: Grade
    """How exact it had to be."""
    gpu: str
    regime: Regime
    plain_peak: Peak
    margin: float
    """The share of the budget that is kept free for what the prediction leaves open."""
    peak: Peak | None = None
    """The peak of the planned step under a limit of the budget; `None` if nothing fits."""
    slowdown: float | None = None
    grade: Grade | None = None
    """How exact the plan is."""
    parts: tuple[Contribution, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    smallest_budgets: Mapping[Grade, int] = field(default_factory=dict)
    """The smallest budget that would do at each grade; only grades that were looked at."""
    largest_batch: int | None = None
    """The largest batch that fits this budget, where the one asked for does not."""
    verified: Literal["traced", "measured"] | None = None
    """Whether the planned step was really traced, or also really run."""
    measured_peak: int | None = None
    """The peak of that run, under a limit of the budget."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "feasible": self.feasible,
            "model_name": self.model_name,
            "batch_size": self.batch_size,
            "budget_bytes": self.budget,
            "numerics": self.numerics,
            "grade": self.grade,
            "gpu": self.gpu,
            "regime": self.regime,
            "margin": self.margin,
            **_peak_dict("plain_peak", self.plain_peak),
            **_peak_dict("predicted_peak", self.peak),
            "predicted_slowdown": self.slowdown,
            "verified": self.verified,
            "measured_peak_bytes": self.measured_peak,
            "parts": [
                {
                    "technique": each.technique,
                    "why": each.why,
                    "grade": each.grade,
                    "predicted_peak_bytes": each.peak,
                    "predicted_slowdown": each.slowdown,
                }
                for each in self.parts
            ],
            "rejected": [
                {
                    "what": each.what,
                    "why": each.why,
                    "predicted_peak_bytes": each.peak,
                    "predicted_slowdown": each.slowdown,
                }
                for each in self.rejected
            ],
            "smallest_budget_bytes": {grade: self.smallest_budgets.get(grade) for grade in GRADES},
            "largest_batch": self.largest_batch,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Prediction":
        """From what `to_dict` returned."""
        plain = _peak_from("plain_peak", values)
        if plain is None:
            raise KeyError("plain_peak_bytes")
        return cls(
            feasible=values["feasible"],
            model_name=values["model_name"],
            batch_size=values["batch_size"],
            budget=values["budget_bytes"],
            numerics=values["numerics"],
            gpu=values["gpu"],
            regime=values["regime"],
            plain_peak=plain,
            margin=values["margin"],
            peak=_peak_from("predicted_peak", values),
            slowdown=values["predicted_slowdown"],
            grade=values["grade"],
            parts=tuple(
                Contribution(
                    each["technique"],
                    each["why"],
                    each["grade"],
                    each["predicted_peak_bytes"],
                    each["predicted_slowdown"],
                )
                for each in values["parts"]
            ),
            rejected=tuple(
                Rejected(each["what"], each["why"], each["predicted_peak_bytes"], each["predicted_slowdown"])
                for each in values["rejected"]
            ),
            smallest_budgets={
                grade: size for grade, size in values["smallest_budget_bytes"].items() if size is not None
            },
            largest_batch=values["largest_batch"],
            verified=values["verified"],
            measured_peak=values["measured_peak_bytes"],
        )


def _peak_dict(name: str, peak: Peak | None) -> dict[str, int | None]:
    values = (None, None, None) if peak is None else (peak.value, peak.low, peak.high)
    return dict(zip((f"{name}_bytes", f"{name}_low_bytes", f"{name}_high_bytes"), values, strict=True))


def _peak_from(name: str, values: Mapping[str, Any]) -> Peak | None:
    if values[f"{name}_bytes"] is None:
        return None
    return Peak(values[f"{name}_bytes"], values[f"{name}_low_bytes"], values[f"{name}_high_bytes"])
