"""Techniques and what they cost, in a few words."""

from typing import TYPE_CHECKING, Any

from memfit.units import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memfit.techniques.technique import Grade

RESULTS: "Mapping[Grade | str, str]" = {
    "exact": "same result to rounding",
    "close": "close result",
    "any": "another training",
}

_VERIFIED = {
    "traced": "the planned step was traced before the run",
    "measured": "the planned step was really run before",
}


def technique_value(technique: str, value: Any) -> str:
    """A technique's value in a few words."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if technique == "micro_batch":
        return f"{value} at a time"
    if technique != "remat":
        return str(value)
    if isinstance(value, int):
        return f"{value} segments"
    if not isinstance(value, list | tuple):
        return str(value)
    kind = "segment" if any(".." in str(each) for each in value) else "layer"
    if len(value) == 1:
        return f"1 {kind}: {value[0]}"
    return f"{len(value)} {kind}s: {value[0]}, …" if value else "nothing"


def techniques_line(techniques: "Mapping[str, Any]") -> str:
    """All of them in a line, without the names of layers."""
    said = (f"{name} {technique_value(name, value).partition(': ')[0]}" for name, value in techniques.items())
    return ", ".join(said) or "nothing"


def speed_words(slowdown: float | None) -> str:
    """The time of a step against plain: "12 % slower"."""
    if slowdown is None:
        return "step time unknown"
    percent = round(100 * slowdown)
    return "as fast" if not percent else f"{abs(percent)} % {'slower' if percent > 0 else 'faster'}"


def slowdown_percent(slowdown: float | None) -> str:
    """The same for a column of numbers: "+12 %"."""
    if slowdown is None:
        return "unknown"
    percent = round(100 * slowdown)
    return f"{percent:+} %" if percent else "0 %"


def plan_sentence(plan: "Mapping[str, Any] | None") -> str:
    """A plan and its price in a sentence."""
    if not plan:
        return "none"
    techniques = plan.get("techniques") or {}
    if plan.get("feasible") is False:
        return f"No plan fits {format_size(plan.get('budget_bytes'))}; the training ran as it was written."
    if not techniques:
        return "Nothing had to be changed: the training fits as it is."
    line = techniques_line(techniques)
    if "feasible" not in plan:
        return f"{line}: written by hand, nothing was predicted of it."
    result = RESULTS.get(plan.get("grade") or "", "result unknown")
    fits = f"in {format_size(plan.get('budget_bytes'))}, {speed_words(plan.get('predicted_slowdown'))}, {result}"
    checked = f"; {_VERIFIED[plan['verified']]}" if plan.get("verified") in _VERIFIED else ""
    return f"{line}: predicted to fit {fits}{checked}."
