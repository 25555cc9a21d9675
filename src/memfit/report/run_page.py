"""A run, or two of them, as one HTML file that loads nothing."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader
from markupsafe import Markup

from memfit import __version__
from memfit.report.plan_words import RESULTS, plan_sentence, slowdown_percent, technique_value, techniques_line
from memfit.report.run_words import (
    NONE,
    change_words,
    count_words,
    difference_words,
    label_words,
    log_words,
    nothing_words,
    seconds_words,
    share_words,
    unit_words,
    visible,
)
from memfit.units import format_size

_SCRIPTS = ("basics.js", "chart.js", "run.js", "step.js", "treemap.js", "peak.js", "main.js")
_MOST_LOGS = 6
_LIMIT_DRAWN = 0.35  # as in run.js
_MISSING = object()
# In JSON these can only be inside strings, where their escapes mean the same; in HTML they could end the script.
_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def run_page(view: Mapping[str, Any]) -> str:
    """The page of one run.

    Args:
        view: What `run_view` returned.
    """
    data = {
        "runs": [_charted(view)],
        "timelines": view["timelines"],
        "operations": view["operations"],
        "predicted_at_peak": view["predicted_at_peak"],
    }
    predictions = _predictions(view)
    return _render(
        "run.html",
        data,
        view=view,
        gauge=_gauge(view, predictions),
        known=_known(view),
        limit_words=_limit_words(view),
        log_names=_log_names(view),
        events=sorted([*view["out_of_memory"], *view["recoveries"]], key=lambda event: event["at"]),
        predictions=predictions,
        plans=[_plan(model) for model in view["models"] if model["plan"]],
        nothing=nothing_words(view),
    )


def comparison_page(comparison: Mapping[str, Any], views: Sequence[Mapping[str, Any]]) -> str:
    """The page of two runs.

    Args:
        comparison: What `compare` returned.
        views: The two views it was made of.
    """
    return _render(
        "compare.html",
        {"runs": [_charted(view) for view in views]},
        comparison=comparison,
        views=views,
        known=[_known(view) for view in views],
        limit_words=[_limit_words(view) for view in views],
        nothing=nothing_words(views[0]),
    )


def json_in_html(value: Any) -> Markup:
    """JSON that can stand in a `<script type="application/json">`, whatever names are in it."""
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_ESCAPES))


def _render(template: str, data: Mapping[str, Any], **values: Any) -> str:
    style = _file("page.css")
    # A scope of their own, so that nothing meets what a browser calls `name`.
    script = f"(() => {{\n{''.join(map(_file, _SCRIPTS))}}})();\n"
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            data=json_in_html(data),
            style=Markup(style),
            style_hash=_hash(style),
            script=Markup(script),
            script_hash=_hash(script),
            version=__version__,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(loader=FunctionLoader(_file), autoescape=True, finalize=_visible)
    environment.filters |= {
        "size": format_size,
        "seconds": seconds_words,
        "share": share_words,
        "change": change_words,
        "count": count_words,
        "log": log_words,
        "log_of": _log_of,
        "unit": unit_words,
        "label": label_words,
        "difference": difference_words,
        "moment": _moment,
        "techniques": lambda techniques: techniques_line(techniques or {}),
    }
    return environment


def _visible(value: Any) -> Any:
    """What is put into the page: no marks of direction or other controls, which even `<bdi>` does not contain."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _file(name: str) -> str:
    return (files("memfit.report") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """For the page's policy: what is written here may run, anything that sneaks in may not."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _charted(view: Mapping[str, Any]) -> dict[str, Any]:
    epochs = [{key: row[key] for key in ("at", "epoch", "phase")} for row in view["epochs"]]
    limit = view["verdict"]["limit_bytes"]
    return {"series": view["series"], "marks": view["marks"], "epochs": epochs, "limit_bytes": limit}


def _known(view: Mapping[str, Any]) -> bool:
    columns = (view["series"][name] for name in ("peak_bytes", "seconds", "host_bytes"))
    return any(value is not None for column in columns for value in column)


def _limit_words(view: Mapping[str, Any]) -> str | None:
    """What the limit's line is called; the chart leaves it out where it would press the run to the floor."""
    limit, peak = view["verdict"]["limit_bytes"], view["verdict"]["peak_bytes"]
    if not limit or peak is None:
        return None
    return "limit" if peak > _LIMIT_DRAWN * limit else f"limit {format_size(limit)}, far above"


def _log_names(view: Mapping[str, Any]) -> list[str]:
    """The columns of the epochs' logs, where there are few.

    Keras repeats a validation's `loss` as `val_loss` of the training; where it has a row of its own, that is enough.
    """
    names = dict.fromkeys(name for row in view["epochs"] for name in row["logs"] or {})
    if any(row["phase"] == "validation" for row in view["epochs"]):
        names = dict.fromkeys(name.removeprefix("val_") for name in names)
    return list(names) if len(names) <= _MOST_LOGS else []


def _log_of(logs: Mapping[str, Any] | None, name: str) -> str:
    found = [(logs or {}).get(each, _MISSING) for each in (name, f"val_{name}")]
    return next((log_words(value) for value in found if value is not _MISSING), NONE)


def _gauge(view: Mapping[str, Any], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The peak, its predicted band and the limit as shares of the widest of them."""
    peak, limit = view["verdict"]["peak_bytes"], view["verdict"]["limit_bytes"]
    if peak is None or not limit:
        return None
    row = next((row for row in predictions if row["what"].startswith("steady peak") and not row["not_run"]), None)
    low, high = (row["predicted_low_bytes"], row["predicted_high_bytes"]) if row else (None, None)
    widest = max(peak, limit, high or 0)
    told = f", predicted from {format_size(low)} to {format_size(high)}" if low and high else ""
    return {
        "peak": _percent(peak, widest),
        "limit": _percent(limit, widest),
        "band": [_percent(low, widest), _percent(high - low, widest)] if low and high else None,
        "low": low,
        "high": high,
        "label": f"Peak {format_size(peak)} of {format_size(limit)}{told}",
    }


def _predictions(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [{**row, "model": model["model"]} for model in view["models"] for row in model["predicted"]]
    names = ("predicted_high_bytes", "predicted_bytes", "measured_bytes")
    widest = max((row[name] or 0 for row in rows for name in names), default=0) or 1
    for row in rows:
        low, high = row["predicted_low_bytes"], row["predicted_high_bytes"]
        row["drawn"] = {
            "band": [_percent(low, widest), _percent(high - low, widest)] if low and high else None,
            "predicted": _percent(row["predicted_bytes"], widest) if row["predicted_bytes"] else None,
            "measured": _percent(row["measured_bytes"], widest) if row["measured_bytes"] else None,
        }
    return rows


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2)


def _plan(model: Mapping[str, Any]) -> dict[str, Any]:
    plan = model["plan"]
    techniques = plan["techniques"]
    told = {part["technique"]: part for part in plan["parts"]}
    order = {name: number for number, name in enumerate(told)}
    parts = [
        {
            "what": f"{name} {technique_value(name, value)}",
            "why": told.get(name, {}).get("why", ""),
            "predicted_peak_bytes": told.get(name, {}).get("predicted_peak_bytes"),
            "time": slowdown_percent(told.get(name, {}).get("predicted_slowdown")),
            "result": RESULTS.get(told.get(name, {}).get("grade"), "unknown"),
        }
        for name, value in sorted(techniques.items(), key=lambda item: order.get(item[0], len(order)))
    ]
    return {
        "model": model["model"],
        "words": plan_sentence(plan),
        "parts": parts,
        "plain_bytes": plan.get("plain_peak_bytes"),
        "rejected": [{**each, "time": slowdown_percent(each["predicted_slowdown"])} for each in plan["rejected"]],
    }


def _moment(started: str | None) -> str:
    """An ISO time for people; what is none is shown as it is."""
    if started is None:
        return "start unknown"
    try:
        return datetime.fromisoformat(started.replace("Z", "+00:00")).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return started
