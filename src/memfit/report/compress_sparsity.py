"""A `SparsityReport` for people."""

from html import escape
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from memfit.compress.sparsity import SparsityReport

_COLUMNS = ("layer", "shape", "weights", "zero", "2:4")


def sparsity_text(report: "SparsityReport") -> str:
    """A table, for `print(report)`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "layer" else "right")
    for row in _rows(report):
        table.add_row(*map(Text, row))
    console = Console(width=100, no_color=True, highlight=False, emoji=False, force_terminal=False)
    with console.capture() as captured:
        console.print(_head(report))
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def sparsity_html(report: "SparsityReport") -> str:
    """A table for notebooks."""
    heads = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in _rows(report))
    return f"<div>{escape(_head(report))}<table><tr>{heads}</tr>{rows}</table></div>"


def _head(report: "SparsityReport") -> str:
    return f"{report.model_name}: {report.sparsity:.1%} of its kernels' weights are zero"


def _rows(report: "SparsityReport") -> list[tuple[str, ...]]:
    return [
        (
            each.layer,
            "x".join(map(str, each.shape)),
            f"{each.weights:,}",
            f"{each.sparsity:.1%}",
            "yes" if each.is_two_of_four else "no",
        )
        for each in report.layers
    ]
