"""A `SparsityReport` for people."""

from html import escape
from typing import TYPE_CHECKING

from memfit.report.tables import as_text, html_table, table

if TYPE_CHECKING:
    from memfit.compress.sparsity import SparsityReport

_COLUMNS, _NUMBERS = ("layer", "shape", "weights", "zero", "2:4"), (1, 2, 3, 4)


def sparsity_text(report: "SparsityReport") -> str:
    """A table, for `print(report)`."""
    return as_text(_head(report), table(_COLUMNS, _rows(report), numbers=_NUMBERS))


def sparsity_html(report: "SparsityReport") -> str:
    """The same for notebooks."""
    return f"<div>{escape(_head(report))}{html_table(_COLUMNS, _rows(report), numbers=_NUMBERS)}</div>"


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
