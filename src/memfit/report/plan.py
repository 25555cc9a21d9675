"""A `Plan` and a `Sweep` for people: short tables in the terminal, a small page in a notebook."""

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memfit.report.plan_words import RESULTS, slowdown_percent, speed_words, technique_value, techniques_line
from memfit.report.stairs import Dot, stairs_svg
from memfit.report.tables import as_text, html_table
from memfit.techniques.technique import GRADES, Grade
from memfit.units import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memfit.estimation.phases import Peak
    from memfit.planning.plan import Plan
    from memfit.planning.prediction import Prediction
    from memfit.planning.sweep import Sweep

_NO_WAY: dict[Grade, str] = {
    "exact": "does not fit with the same result to rounding",
    "close": "does not fit, not even with a close result",
    "any": "does not fit, not even as another training",
}
_REGIMES = {"graph": "graph: TensorFlow runs one operation after the other", "xla": "xla: XLA compiles the step"}
_VERIFIED = {
    "traced": "the planned step was traced, not run",
    "measured": "the planned step was really run",
    None: "no: the peak is simulated; the planned step was neither traced nor run",
}
_HOW_TO_READ = (
    "A dot is a way to train that no other beats in both memory and time; pale ones do not give the same result to "
    "rounding. The line is the least time a budget allows."
)
_REJECTED = 6
_NUMBERS = frozenset(("bytes", "from", "to", "peak", "time", "budget"))


def render_plan(plan: "Plan", *, next_step: str | None = "memfit.fit(model, ..., plan=plan)") -> RenderableType:
    """The page for the terminal.

    Args:
        plan: What to show.
        next_step: What to do with a plan that fits; `None` leaves it to the caller to say.
    """
    prediction = plan.prediction
    if prediction is None:
        parts: list[RenderableType] = [Text(_by_hand(plan), style="bold")]
        if plan.techniques:
            parts.append(_rich(_values(plan)))
    else:
        before, verdict = _headline(plan, prediction)
        style = "bold green" if prediction.feasible else "bold red"
        parts = [Text.assemble(before, (verdict, style)), Text(), _rich(_peaks(prediction))]
        parts.append(Text(_REGIMES[prediction.regime], style="dim"))
        for grid in _grids(plan, prediction):
            parts += [Text(), _rich(grid)]
    parts += [Text(), _rich(notes)] if (notes := _notes(plan, next_step)).rows else []
    return Group(*parts)


def plan_text(plan: "Plan") -> str:
    """The same as plain text, for `print(plan)`."""
    return as_text(render_plan(plan))


def plan_html(plan: "Plan") -> str:
    """A small self-contained piece of HTML for notebooks."""
    prediction = plan.prediction
    if prediction is None:
        return f"<div><b>{escape(_by_hand(plan))}</b>{_html(_values(plan)) if plan.techniques else ''}</div>"
    before, verdict = _headline(plan, prediction)
    grids = "".join(map(_html, [_peaks(prediction), *_grids(plan, prediction)]))
    notes = "".join(f"<br>{escape(what)}: {escape(text)}" for what, text in _notes(plan, None).rows)
    return (
        f"<div>{escape(before)}<b>{escape(verdict)}</b>{grids}<small>{escape(_REGIMES[prediction.regime])}"
        f"{notes}</small></div>"
    )


def render_sweep(sweep: "Sweep") -> RenderableType:
    """The page for the terminal."""
    what = Text.assemble((sweep.model_name, "bold"), _sweep_headline(sweep))
    table: list[RenderableType] = [Text(), _rich(_points(sweep))] if sweep.points else []
    return Group(what, *table, Text(), Text(_sweep_note(sweep), style="dim"))


def sweep_text(sweep: "Sweep") -> str:
    """The same as plain text, for `print(sweep)`."""
    return as_text(render_sweep(sweep))


def sweep_html(sweep: "Sweep") -> str:
    """A table and a drawing in one self-contained piece of HTML for notebooks."""
    body = f"{_drawing(sweep)}<br><small>{_HOW_TO_READ}</small>{_html(_points(sweep))}" if sweep.points else ""
    return (
        f"<div><b>{escape(sweep.model_name)}</b>{escape(_sweep_headline(sweep))}<br>{body}"
        f"<small>{escape(_sweep_note(sweep))}</small></div>"
    )


@dataclass(frozen=True)
class _Grid:
    """Words in columns, for the terminal and for HTML; what is below the first line of a cell is small print."""

    columns: tuple[str, ...]
    rows: "Sequence[tuple[str, ...]]"


def _rich(grid: _Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(grid.columns))
    for column in grid.columns:
        numbers = column in _NUMBERS
        # Numbers stay whole; names of layers have no spaces to break at.
        table.add_column(column, justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
    for row in grid.rows:
        table.add_row(*map(_rich_cell, row))
    return table


def _rich_cell(cell: str) -> RenderableType:
    first, _, below = cell.partition("\n")
    return Group(Text(first), Padding(Text(below, style="dim"), (0, 0, 0, 4))) if below else Text(first)


def _html(grid: _Grid) -> str:
    return html_table(
        grid.columns, grid.rows, numbers=[at for at, column in enumerate(grid.columns) if column in _NUMBERS]
    )


def _headline(plan: "Plan", prediction: "Prediction") -> tuple[str, str]:
    """What was asked, and the answer."""
    asked = f"batch {prediction.batch_size}, in {format_size(prediction.budget)} on {prediction.gpu}"
    before = f"{prediction.model_name}, {asked}: "
    if not prediction.feasible:
        return before, _NO_WAY[prediction.numerics]
    if not plan.techniques:
        return before, "fits as it is"
    result = "unknown result" if prediction.grade is None else RESULTS[prediction.grade]
    return before, f"fits, {speed_words(prediction.slowdown)}, {result}"


def _by_hand(plan: "Plan") -> str:
    if plan.techniques:
        return "a plan written by hand: nothing is predicted of it"
    return "an empty plan: nothing is changed"


def _grids(plan: "Plan", prediction: "Prediction") -> list[_Grid]:
    grids = [_changes(plan, prediction)] if prediction.feasible else [_budgets(prediction)]
    if prediction.rejected:
        grids.append(_tried(prediction))
    return [grid for grid in grids if grid.rows]


def _peaks(prediction: "Prediction") -> _Grid:
    rows = [("plain peak", *_band(prediction.plain_peak), "nothing changed")]
    if prediction.feasible:
        under = f"in {format_size(prediction.budget)}, {100 * prediction.margin:.0f} % of it kept free"
        rows.insert(0, ("planned peak", *_band(prediction.peak), under))
    return _Grid(("predicted", "bytes", "from", "to", ""), rows)


def _band(peak: "Peak | None") -> tuple[str, str, str]:
    if peak is None:
        return "unknown", "", ""
    if peak.low == peak.high:
        # A band of no width would promise what nobody knows.
        return format_size(peak.value), "unknown", "unknown"
    return format_size(peak.value), format_size(peak.low), format_size(peak.high)


def _values(plan: "Plan") -> _Grid:
    return _Grid(("", ""), [(name, technique_value(name, value)) for name, value in plan.techniques.items()])


def _changes(plan: "Plan", prediction: "Prediction") -> _Grid:
    """Each technique on top of those above it."""
    rows: list[tuple[str, ...]] = []
    for each in prediction.parts:
        what = f"+ {each.technique} {technique_value(each.technique, plan.techniques.get(each.technique))}\n{each.why}"
        rows.append((what, format_size(each.peak), slowdown_percent(each.slowdown), each.grade))
    told = {each.technique for each in prediction.parts}
    for name, value in plan.techniques.items():
        if name not in told:
            rows.append((f"+ {name} {technique_value(name, value)}", "unknown", "unknown", "unknown"))
    columns = ("it changes", "peak", "time", "grade")
    # Where all is exact the headline has said so.
    if prediction.grade == "exact":
        return _Grid(columns[:-1], [row[:-1] for row in rows])
    return _Grid(columns, rows)


def _tried(prediction: "Prediction") -> _Grid:
    rows = [
        (each.what, each.why, format_size(each.peak), slowdown_percent(each.slowdown))
        for each in prediction.rejected[:_REJECTED]
    ]
    if left := len(prediction.rejected) - len(rows):
        rows.append((f"and {left} more", "", "", ""))
    return _Grid(("also tried" if prediction.feasible else "tried", "but", "peak", "time"), rows)


def _budgets(prediction: "Prediction") -> _Grid:
    """What would do instead."""
    rows = [
        (f"with a budget of {_at_least(size)}", RESULTS[grade] + _asked(grade, prediction.numerics))
        for grade, size in prediction.smallest_budgets.items()
    ]
    batch = "unknown" if prediction.largest_batch is None else str(prediction.largest_batch or "none")
    return _Grid(("what would fit", ""), [*rows, (f"in {format_size(prediction.budget)}", f"largest batch: {batch}")])


def _asked(grade: Grade, numerics: Grade) -> str:
    """How to ask for it, where that is not as exact as what was asked for."""
    return f' (numerics "{grade}")' if GRADES.index(grade) > GRADES.index(numerics) else ""


def _notes(plan: "Plan", next_step: str | None) -> _Grid:
    prediction = plan.prediction
    rows = []
    if prediction is not None and prediction.feasible:
        ran = f", in {format_size(prediction.measured_peak)}" if prediction.measured_peak is not None else ""
        rows.append(("verified", f"{_VERIFIED[prediction.verified]}{ran}"))
    if next_step is not None and plan.techniques and plan.feasible is not False:
        rows.append(("next", next_step))
    return _Grid(("", ""), rows)


def _at_least(size: int) -> str:
    """A size rounded up, so that it still does when somebody types it."""
    shown = size
    while parse_size(format_size(shown)) < size:
        shown += size // 1000 + 1
    return format_size(shown)


def _sweep_headline(sweep: "Sweep") -> str:
    plain = format_size(sweep.plain_peak)
    return f", batch {sweep.batch_size}, on {sweep.gpu}: plain peak {plain} ({sweep.regime})"


def _sweep_note(sweep: "Sweep") -> str:
    if not sweep.points:
        return "No way to train it was found."
    return "All of it is predicted; time is that of a step against plain. A plan for one budget also checks it."


def _points(sweep: "Sweep") -> _Grid:
    rows = [
        (
            _at_least(each.budget), format_size(each.peak), slowdown_percent(each.slowdown), RESULTS[each.grade],
            techniques_line(each.techniques),
        )
        for each in sweep.points
    ]  # fmt: skip
    return _Grid(("budget", "peak", "time", "result", "with"), rows)


def _drawing(sweep: "Sweep") -> str:
    return stairs_svg(
        [
            Dot(
                budget=each.budget,
                percent=100 * each.slowdown,
                filled=each.grade == "exact",
                title=f"{_at_least(each.budget)}, {slowdown_percent(each.slowdown)}, {RESULTS[each.grade]}: "
                f"{techniques_line(each.techniques)}",
            )
            for each in sweep.points
        ]
    )
