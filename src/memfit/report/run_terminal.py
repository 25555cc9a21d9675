"""A run in a terminal of 80 columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memfit.report.plan_words import plan_sentence, slowdown_percent, technique_value, techniques_line
from memfit.report.run_words import (
    NONE,
    change_words,
    count_words,
    log_words,
    nothing_words,
    seconds_words,
    share_words,
    visible,
)
from memfit.report.tables import table
from memfit.units import format_size

_STATES = {"fits": "bold green", "tight": "bold yellow", "recovered": "bold yellow", "interrupted": "bold yellow"}
_SEVERITIES = {"problem": "bold red", "warning": "yellow", "note": "cyan"}
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_SPARK = 60
_LAYERS, _EPOCHS, _EVENTS = 8, 8, 6


def render_run(view: Mapping[str, Any]) -> RenderableType:
    """The page of one run: the headline, what to change, where the bytes are."""
    sections = [
        ("Findings", _findings(view)),
        ("Over the run", _over_the_run(view)),
        ("At the peak", _at_peak(view)),
        ("Predicted against measured", _predicted(view)),
        ("Plan", _plans(view)),
        ("Epochs", _epochs(view)),
        ("Retraces", _retraces(view)),
    ]
    parts: list[RenderableType] = [_headline(view), Text(), _facts(view)]
    for title, body in sections:
        parts += [Text(f"\n{title}", style="bold"), body]
    return Group(*parts)


def _headline(view: Mapping[str, Any]) -> Text:
    verdict = view["verdict"]
    peak, limit = verdict["peak_bytes"], verdict["limit_bytes"]
    share = f" ({share_words(verdict['share_of_limit'])})" if verdict["share_of_limit"] is not None else ""
    of_limit = f" of {format_size(limit)}{share}" if limit else ""
    return Text.assemble(
        ("peak ", ""), (format_size(peak), "bold"), f"{of_limit}: ",
        (visible(verdict["words"]), _STATES.get(verdict["state"], "bold red" if peak is not None else "yellow")),
    )  # fmt: skip


def _facts(view: Mapping[str, Any]) -> Table:
    run = view["run"]
    rows = [
        (
            "model",
            f"{model['model']}, batch {model['batch_size'] or 'unknown'}, "
            f"{count_words(model['parameters'])} parameters, {model['regime'] or 'regime unknown'}",
        )
        for model in view["models"][:3]
    ]
    rows.append(("device", f"{run['device_name'] or 'unknown'} ({run['device'] or 'unknown'})"))
    for phase in view["phases"]:
        took = f"{count_words(phase['steps'])} steps, {seconds_words(phase['median_step_seconds'])} each"
        rows.append((phase["phase"], f"{took}, peak {format_size(phase['peak_bytes'])}"))
    ended = run["outcome"] or "killed or crashed"
    rows.append(("ran for", f"{seconds_words(run['seconds'])}, {ended}"))
    if view["broken_lines"]:
        rows.append(("record", f"{view['broken_lines']} lines could not be read"))
    return table(("", ""), rows)


def _findings(view: Mapping[str, Any]) -> RenderableType:
    if not view["findings"]:
        return _nothing("Nothing was found that is worth changing.")
    parts: list[RenderableType] = []
    for finding in view["findings"]:
        style = _SEVERITIES.get(finding["severity"], "")
        parts.append(Text.assemble((finding["severity"], style), f"  {visible(finding['title'])}"))
        parts.append(_indented(f"{finding['evidence']}\n{finding['cause']}", "dim"))
        parts.append(_indented(finding["fix"], "green"))
    return Group(*parts)


def _over_the_run(view: Mapping[str, Any]) -> RenderableType:
    peaks = view["series"]["peak_bytes"]
    if not any(peak is not None for peak in peaks):
        return _nothing(nothing_words(view)["statistics"] if peaks else "No step was recorded.")
    highest = max(peak for peak in peaks if peak is not None)
    top = view["verdict"]["limit_bytes"] or highest
    whole = top if highest > 0.35 * top else highest
    parts: list[RenderableType] = [
        Text.assemble((_spark(peaks, max(whole, highest)), "blue"), f"  0 to {format_size(max(whole, highest))}")
    ]
    events = sorted([*view["out_of_memory"], *view["recoveries"]], key=lambda event: event["at"])
    for event in ends(events, _EVENTS):
        where = f"{event['phase']} step {event['step']}"
        if "what" in event:
            cost = f"it took {seconds_words(event['seconds'])}"
            now = techniques_line(event["techniques"] or {})
            parts.append(
                Text(f"{where}: recovered, {visible(event['what'])} (now {visible(now)}; {cost})", style="green")
            )
        else:
            asked = f"asked for {format_size(event['asked_bytes'])}, {format_size(event['in_use_bytes'])} in use"
            what = visible(event["layer"] or event["op"] or "an unknown operation")
            parts.append(Text(f"{where}: out of memory in {what} ({asked})", style="red"))
    return Group(*parts)


def _spark(values: Sequence[int | None], whole: float) -> str:
    """The highest of each stretch, as blocks; a gap where nothing is known."""
    width = min(_SPARK, len(values))
    blocks = []
    for at in range(width):
        known = [value for value in values[at * len(values) // width : (at + 1) * len(values) // width] if value]
        blocks.append(_EIGHTHS[max(1, round(8 * max(known) / whole))] if known else " ")
    return "".join(blocks)


def _at_peak(view: Mapping[str, Any]) -> RenderableType:
    if view["timelines"]:
        step = max(view["timelines"], key=lambda each: each["peak_bytes"] or 0)
        told = f"measured in {step['phase']} step {step['step']}, peak {format_size(step['peak_bytes'])}"
        return Group(Text(told, style="dim"), _layers(step["by_layer"], step["peak_bytes"]))
    predicted = view["predicted_at_peak"]
    if predicted is None:
        return _nothing(nothing_words(view)["peak"])
    kinds = [(kind.replace("_", " "), format_size(size)) for kind, size in predicted["kinds"].items()]
    return Group(Text("predicted: no step was profiled", style="dim"), table(("kind", "bytes"), kinds, numbers=(1,)))


def _layers(layers: Sequence[Mapping[str, Any]], peak: int | None) -> Table:
    rows = []
    for each in layers[:_LAYERS]:
        size = sum(each["kinds"].values())
        most = max(each["kinds"], key=lambda kind: each["kinds"][kind])
        name = f"{each['layers']} smaller layers" if each["layers"] > 1 else each["layer"] or "no layer"
        rows.append((name, format_size(size), share_words(size / peak if peak else None), most))
    if left := len(layers) - len(rows):
        rows.append((f"and {left} more", "", "", ""))
    return table(("layer", "bytes", "share", "mostly"), rows, numbers=(1, 2))


def _predicted(view: Mapping[str, Any]) -> RenderableType:
    rows = []
    for model in view["models"]:
        for row in model["predicted"]:
            sizes = [format_size(row[f"predicted{which}_bytes"]) for which in ("", "_low", "_high")]
            measured = "not run" if row["not_run"] else format_size(row["measured_bytes"])
            rows.append((row["what"], *sizes, measured, NONE if row["not_run"] else change_words(row["difference"])))
    columns = ("peak", "predicted", "from", "to", "measured", "off by")
    return table(columns, rows, numbers=(1, 2, 3, 4, 5)) if rows else _nothing(nothing_words(view)["estimate"])


def _plans(view: Mapping[str, Any]) -> RenderableType:
    plans = [model["plan"] for model in view["models"] if model["plan"]]
    if not plans:
        return _nothing(nothing_words(view)["plan"])
    parts: list[RenderableType] = []
    for plan in plans:
        parts.append(Text(visible(plan_sentence(plan))))
        techniques = plan["techniques"]
        rows = [
            (
                f"+ {part['technique']} {technique_value(part['technique'], techniques.get(part['technique']))}",
                format_size(part["predicted_peak_bytes"]),
                slowdown_percent(part["predicted_slowdown"]),
            )
            for part in plan["parts"]
        ]
        if rows:
            parts.append(table(("it changes", "predicted peak", "step time"), rows, numbers=(1, 2)))
    return Group(*parts)


def _epochs(view: Mapping[str, Any]) -> RenderableType:
    rows = [
        (
            str(row["epoch"] or NONE),
            row["phase"],
            seconds_words(row["seconds"]),
            format_size(row["peak_bytes"]),
            ", ".join(f"{name} {log_words(value)}" for name, value in (row["logs"] or {}).items()) or "none",
        )
        for row in ends(view["epochs"], _EPOCHS)
    ]
    if not rows:
        return _nothing("No epoch was over when the run ended.")
    shown = table(("epoch", "phase", "time", "peak", "logs"), rows, numbers=(0, 2, 3))
    left = len(view["epochs"]) + view["left_out"]["epochs"] - len(rows)
    return Group(shown, Text(f"{count_words(left)} more in between", style="dim")) if left else shown


def _retraces(view: Mapping[str, Any]) -> RenderableType:
    rows = view["retraces"]
    if not rows:
        return _nothing("None: no step was traced a second time.")
    lines = [Text(f"{row['phase']} step {row['step']}: {visible(row['reason'])}") for row in ends(rows, _EVENTS)]
    left = len(rows) + view["left_out"]["retraces"] - len(lines)
    return Group(*lines, *([Text(f"{count_words(left)} more in between", style="dim")] if left else []))


def ends(rows: Sequence[Any], most: int) -> list[Any]:
    """The first and the last of many."""
    return list(rows) if len(rows) <= most else [*rows[: most // 2], *rows[-(most // 2) :]]


def _indented(text: str, style: str) -> Padding:
    return Padding(Text(visible(text), style=style), (0, 0, 0, 4))


def _nothing(words: str) -> Text:
    return Text(words, style="dim")
