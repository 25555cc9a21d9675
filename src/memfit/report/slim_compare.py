"""A `Comparison` for people: two columns and what they mean."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from memfit.report.tables import as_text, html_table, table
from memfit.units import format_size

if TYPE_CHECKING:
    from memfit.estimation.phases import Peak
    from memfit.slimming.compare import Comparison, ModelFacts

_UNKNOWN = "unknown"
_NUMBERS = (1, 2)


def render_comparison(comparison: "Comparison") -> RenderableType:
    """The page for the terminal."""
    head = Text(
        f"batch {comparison.batch_size} on {comparison.gpu.name}, {comparison.regime}; predicted, if not measured"
    )
    sides = table(("", *_names(comparison)), _rows(comparison), numbers=_NUMBERS)
    parts: list[RenderableType] = [head, Text(), sides]
    for title, style, sentences in _sides(comparison):
        if sentences:
            parts += [Text(), Text(title, style=f"bold {style}"), *(Text(f"  {each}") for each in sentences)]
    return Group(*parts)


def comparison_text(comparison: "Comparison") -> str:
    """The same as plain text, for `print(comparison)`."""
    return as_text(render_comparison(comparison), width=120)


def comparison_html(comparison: "Comparison") -> str:
    """A small self-contained piece of HTML for notebooks."""
    sides = html_table(("", *_names(comparison)), _rows(comparison), numbers=_NUMBERS)
    words = "".join(
        f"<b>{escape(title)}</b><ul>{''.join(f'<li>{escape(each)}</li>' for each in sentences)}</ul>"
        for title, _, sentences in _sides(comparison)
        if sentences
    )
    return f"<div>{sides}{words}</div>"


def _names(comparison: "Comparison") -> tuple[str, str]:
    first, second = comparison.first.name, comparison.second.name
    return (first, second) if first != second else (f"{first} (first)", f"{second} (second)")


def _sides(comparison: "Comparison") -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    verdict = comparison.verdict
    return ("gained", "green", verdict.gained), ("not gained", "yellow", verdict.not_gained)


def _rows(comparison: "Comparison") -> Iterator[tuple[str, str, str]]:
    columns = [dict(_cells(each)) for each in (comparison.first, comparison.second)]
    for name, value in columns[0].items():
        yield name, value, columns[1].get(name, _UNKNOWN)


def _cells(facts: "ModelFacts") -> Iterator[tuple[str, str]]:
    yield "parameters", f"{facts.parameters:,}"
    yield "GFLOPs per sample, forward", f"{facts.forward_flops / 1e9:.3g}"
    yield "peak of training", _peak(facts.train_peak)
    yield "peak of predict", _peak(facts.predict_peak)
    yield "time of a training step", f"{facts.step_seconds * 1000:.1f} ms"
    yield "saved weights", format_size(facts.file_bytes)
    if facts.accuracy is not None:
        yield "accuracy", f"{facts.accuracy:.1%}"
    if (run := facts.measured) is not None:
        yield f"measured peak of training ({run.device})", format_size(run.steady_peak)
        yield f"measured peak of predict ({run.device})", format_size(run.predict_peak)
        seconds = run.step_seconds
        yield f"measured time of a step ({run.device})", _UNKNOWN if seconds is None else f"{seconds * 1000:.1f} ms"


def _peak(peak: "Peak | None") -> str:
    if peak is None:
        return _UNKNOWN
    return f"{format_size(peak.value)} ({format_size(peak.low)} to {format_size(peak.high)})"
