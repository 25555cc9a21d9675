"""Tables for the terminal and for notebooks, and what is printed as plain text."""

from collections.abc import Iterable, Sequence
from html import escape

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from memfit.report.run_words import visible

_HTML_WORDS = "padding:.1em 1em .1em 0;text-align:left"
_HTML_NUMBER = "padding:.1em 1em .1em 0;text-align:right;white-space:nowrap"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> Table:
    """Cells in columns, those with `numbers` to the right; whatever is in a cell is text, not markup."""
    shown = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for at, column in enumerate(columns):
        right = at in numbers
        shown.add_column(Text(column), justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(visible(cell)) for cell in row))
    return shown


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """The same for notebooks; what is below the first line of a cell is small print."""
    head = _html_row("th", columns, numbers) if any(columns) else ""
    return f"<table>{head}{''.join(_html_row('td', row, numbers) for row in rows)}</table>"


def as_text(*parts: RenderableType, width: int = 100) -> str:
    """What a terminal without colours shows, for `print(...)`."""
    # A layer may be called ":fire:" and must not become a picture of one.
    console = Console(width=width, no_color=True, highlight=False, emoji=False, force_terminal=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def _html_row(tag: str, row: Sequence[str], numbers: Sequence[int]) -> str:
    cells = (
        f"<{tag} style='{_HTML_NUMBER if at in numbers else _HTML_WORDS}'>{_html_cell(cell)}</{tag}>"
        for at, cell in enumerate(row)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _html_cell(cell: str) -> str:
    first, _, below = cell.partition("\n")
    return f"{escape(first)}<br><small>{escape(below)}</small>" if below else escape(first)
