"""`Suggestions` of backbones for people."""

from html import escape
from typing import TYPE_CHECKING

from rich.text import Text

from memfit.report.tables import as_text, html_table, table
from memfit.units import format_size

if TYPE_CHECKING:
    from memfit.slimming.backbones import Suggestions

_COLUMNS, _NUMBERS = ("network", "predicted peak", "parameters", "ImageNet top-1", "top-5"), (1, 2, 3, 4)


def suggestions_text(suggestions: "Suggestions") -> str:
    """A table, for `print(suggestions)`."""
    found = table(_COLUMNS, _rows(suggestions), numbers=_NUMBERS)
    others = [Text(f"not {name}: {why}") for name, why in suggestions.rejected]
    return as_text(_head(suggestions), found if suggestions.backbones else "none of those tried fits", *others)


def suggestions_html(suggestions: "Suggestions") -> str:
    """The same for notebooks."""
    found = html_table(_COLUMNS, _rows(suggestions), numbers=_NUMBERS)
    others = "".join(f"<li>not {escape(name)}: {escape(why)}</li>" for name, why in suggestions.rejected)
    return f"<div>{escape(_head(suggestions))}{found}<ul>{others}</ul></div>"


def _head(suggestions: "Suggestions") -> str:
    shape = "x".join(map(str, suggestions.input_shape))
    return (
        f"{shape}, batch {suggestions.batch_size}, Adam in float32, {format_size(suggestions.budget)} "
        f"on {suggestions.gpu.name}; accuracy as Keras documents it, at each network's own resolution"
    )


def _rows(suggestions: "Suggestions") -> list[tuple[str, ...]]:
    return [
        (
            each.name,
            f"{format_size(each.peak.value)} ({format_size(each.peak.low)} to {format_size(each.peak.high)})",
            f"{each.parameters:,}",
            "unknown" if each.top1 is None else f"{each.top1:.1%}",
            "unknown" if each.top5 is None else f"{each.top5:.1%}",
        )
        for each in suggestions.backbones
    ]
