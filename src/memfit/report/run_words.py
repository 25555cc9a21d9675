"""Numbers and names of a run in the words people read, for the page and for the terminal."""

import re
from collections.abc import Mapping
from typing import Any

from memfit.units import format_size, size_literal

NONE = "\u2013"
"""An empty cell of a table."""
# The terminal's controls but tab and new line, marks of direction, line separators, and half characters.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def seconds_words(seconds: float | None) -> str:
    """A time with three digits: "310 ms", "6.2 s", "3 min 20 s", "2 h 05 min"; `None` is "unknown".

    Example:
        >>> seconds_words(0.3104), seconds_words(200), seconds_words(None)
        ('310 ms', '3 min 20 s', 'unknown')
    """
    if seconds is None:
        return "unknown"
    if seconds < 0:
        return "-" + seconds_words(-seconds)
    if seconds < 0.9995:
        factor, unit = (1e6, "µs") if seconds < 0.9995e-3 else (1e3, "ms")
        return f"{_three_digits(seconds * factor)} {unit}"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min"


def share_words(share: float | None) -> str:
    """A share of a whole: "73 %"; `None` is "unknown"."""
    return "unknown" if share is None else f"{100 * share:.0f} %"


def change_words(change: float | None) -> str:
    """A change against something: "+12 %", "-3.4 %", "0 %"; `None` is "unknown"."""
    if change is None:
        return "unknown"
    percent = f"{100 * change:+.1f}" if abs(change) < 0.0995 else f"{100 * change:+.0f}"
    return "0 %" if float(percent) == 0 else f"{percent} %"


def count_words(count: int | None) -> str:
    """A count with thin spaces between thousands, so that it is not taken for a decimal number."""
    return "unknown" if count is None else f"{count:,}".replace(",", "\u202f")


def times_words(count: int) -> str:
    """How often: "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def unit_words(value: Any, name: str) -> str:
    """A number by the name of its field: bytes, seconds or a count."""
    if name.endswith("_bytes"):
        return format_size(value)
    return seconds_words(value) if name.endswith("seconds") else count_words(value)


def label_words(name: str) -> str:
    """The name of a field as a label: "train_step_seconds" is "train step time"."""
    return name.removesuffix("_bytes").replace("_seconds", "_time").replace("_", " ")


def difference_words(pair: Mapping[str, Any], name: str | None = None) -> str:
    """How the second of two numbers differs from the first, counts by how many; a dash where it does not."""
    if pair["a"] == pair["b"] and pair["a"] is not None:
        return NONE
    if name is not None and not name.endswith(("_bytes", "seconds")) and None not in (pair["a"], pair["b"]):
        return f"{pair['b'] - pair['a']:+}"
    return change_words(pair["change"])


def log_words(value: object) -> str:
    """A logged metric with four digits; other values are shown unchanged."""
    if value is None:
        return "unknown"
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def nothing_words(view: Mapping[str, Any]) -> dict[str, str]:
    """What to say, and what to do, where a run has nothing to show."""
    limit = size_literal(view["verdict"]["limit_bytes"]) if view["verdict"]["limit_bytes"] else "8GiB"
    return {
        "statistics": "The device gave no memory statistics. On a CPU, TensorFlow counts under a limit: "
        'memfit.devices.configure(limit="4GiB")',
        "timeline": "No step of this run was profiled: it was too short, or profiling was off. "
        "memfit.Recorder(profile_steps=1) profiles one after the first three.",
        "peak": "Unknown: no step was profiled, and the model has no prediction.",
        "estimate": "This run has no prediction. To compare, pass one to the recorder: "
        "memfit.Recorder(estimate=memfit.estimate(model, batch_size))",
        "plan": "No plan: the model was trained unmodified. To find the fastest plan that fits: "
        f'memfit.plan(model, batch_size, budget="{limit}")',
    }


def visible(text: str) -> str:
    """Control characters as escapes: a name must not move the cursor or turn the line around."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _three_digits(value: float) -> str:
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
