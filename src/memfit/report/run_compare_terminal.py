"""Two runs side by side in a terminal of 80 columns."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from memfit.report.run_terminal import ends
from memfit.report.run_words import NONE, difference_words, label_words, log_words, unit_words, visible
from memfit.report.tables import table

_LOGS = 16


def render_comparison(comparison: Mapping[str, Any]) -> RenderableType:
    """Two runs side by side."""
    measured = [
        (label_words(name), unit_words(pair["a"], name), unit_words(pair["b"], name), difference_words(pair, name))
        for name, pair in comparison["measured"].items()
    ]
    setup = [(name, pair["a"], pair["b"]) for name, pair in comparison["setup"].items()]
    logs = [
        (
            f"{row['epoch'] or NONE} {row['phase']} {row['log']}",
            log_words(row["a"]),
            log_words(row["b"]),
            difference_words(row),
        )
        for row in ends(comparison["epochs"], _LOGS)
    ]
    parts: list[RenderableType] = [
        Text(comparison["words"], style="bold"),
        *(Text(f"{which.upper()}  {visible(name)}", style="dim") for which, name in comparison["records"].items()),
        Text(),
        table(("", "A", "B", "B against A"), measured, numbers=(1, 2, 3)),
        Text(),
        table(("", "A", "B"), setup),
    ]
    if logs:
        parts += [Text(), table(("epoch", "A", "B", "B against A"), logs, numbers=(1, 2, 3))]
    return Group(*parts)
