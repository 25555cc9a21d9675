"""`Suggestions` of backbones for people."""

from html import escape
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memfit.units import format_size

if TYPE_CHECKING:
    from memfit.slimming.backbones import Suggestions

_COLUMNS = ("network", "predicted peak", "parameters", "ImageNet top-1", "top-5")


def suggestions_text(suggestions: "Suggestions") -> str:
    """A table, for `print(suggestions)`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "network" else "right")
    for row in _rows(suggestions):
        table.add_row(*map(Text, row))
    console = Console(width=100, no_color=True, highlight=False, emoji=False, force_terminal=False)
    with console.capture() as captured:
        console.print(_head(suggestions))
        console.print(table if suggestions.backbones else "none of those tried fits")
        for name, why in suggestions.rejected:
            console.print(Text(f"not {name}: {why}"))
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def suggestions_html(suggestions: "Suggestions") -> str:
    """The same for notebooks."""
    heads = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in _rows(suggestions))
    others = "".join(f"<li>not {escape(name)}: {escape(why)}</li>" for name, why in suggestions.rejected)
    return f"<div>{escape(_head(suggestions))}<table><tr>{heads}</tr>{rows}</table><ul>{others}</ul></div>"


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
