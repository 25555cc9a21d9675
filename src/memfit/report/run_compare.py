"""Two runs side by side: what they took, how fast they were, what they were set to, what they logged."""

from collections.abc import Mapping
from typing import Any

from memfit.report.plan_words import plan_sentence
from memfit.report.run_words import seconds_words
from memfit.units import format_size

_MOST_ROWS = 500
_REGIMES = {"graph": "graph", "xla": "XLA"}


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between two runs.

    Args:
        a: What `run_view` returned for the first.
        b: The same for the second.

    Returns:
        Plain JSON values: `measured` (name to `a`, `b` and `change`, which is (b - a) / a), `setup` and `epochs`.
    """
    of_a, of_b = _measured(a), _measured(b)
    measured = {name: _pair(of_a.get(name), of_b.get(name)) for name in dict.fromkeys([*of_a, *of_b])}
    setup_a, setup_b = _setup(a), _setup(b)
    epochs = _epochs(a, b)
    half = _MOST_ROWS // 2
    return {
        "memfit_comparison": 1,
        "records": {"a": a["record"], "b": b["record"]},
        "words": _headline(measured),
        "measured": measured,
        "setup": {name: {"a": value, "b": setup_b[name]} for name, value in setup_a.items()},
        "epochs": epochs if len(epochs) <= _MOST_ROWS else [*epochs[:half], *epochs[-half:]],
        "epochs_left_out": max(0, len(epochs) - _MOST_ROWS),
    }


def _pair(a: float | None, b: float | None) -> dict[str, Any]:
    # A log that is not a number is kept as a word.
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    change = (b - a) / abs(a) if numbers and a and b is not None else None
    return {"a": a, "b": b, "change": change}


def _measured(view: Mapping[str, Any]) -> dict[str, Any]:
    phases = {phase["phase"]: phase for phase in view["phases"]}
    found: dict[str, Any] = {"peak_bytes": view["verdict"]["peak_bytes"]}
    for phase, numbers in phases.items():
        found[f"{phase}_step_seconds"] = numbers["median_step_seconds"]
        found[f"{phase}_peak_bytes"] = numbers["peak_bytes"]
        found[f"{phase}_steps"] = numbers["steps"]
    hosts = [phase["host_bytes"] for phase in phases.values() if phase["host_bytes"] is not None]
    return {
        **found,
        "run_seconds": view["run"]["seconds"],
        "host_peak_bytes": max(hosts, default=None),
        "out_of_memory": len(view["out_of_memory"]),
        "recoveries": len(view["recoveries"]),
        "retraces": len(view["retraces"]) + view["left_out"]["retraces"],
        "findings": len(view["findings"]),
    }


def _setup(view: Mapping[str, Any]) -> dict[str, str]:
    run, models = view["run"], view["models"]
    model = models[0] if models else {}
    batch = model.get("batch_size")
    return {
        "model": model.get("model") or "unknown",
        "batch": "unknown" if batch is None else str(batch),
        "regime": _REGIMES.get(model.get("regime") or "", "unknown"),
        "plan": plan_sentence(model.get("plan")),
        "limit": format_size(run["limit_bytes"]),
        "device": run["device_name"] or run["device"] or "unknown",
        "TensorFlow": run["tensorflow"] or "unknown",
        "Keras": run["keras"] or "unknown",
        "ended": run["outcome"] or "killed or crashed",
        "command": " ".join(run["command"] or ()) or "unknown",
    }


def _epochs(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each logged number of each epoch that one of the two has."""
    of_a, of_b = _logs(a), _logs(b)
    keys = sorted(of_a.keys() | of_b.keys(), key=lambda key: (key[0] is None, key[0] or 0, key[1], key[2]))
    return [{"epoch": key[0], "phase": key[1], "log": key[2], **_pair(of_a.get(key), of_b.get(key))} for key in keys]


def _logs(view: Mapping[str, Any]) -> dict[tuple[int | None, str, str], Any]:
    return {
        (row["epoch"], row["phase"], name): value
        for row in view["epochs"]
        for name, value in (row["logs"] or {}).items()
    }


def _headline(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """What B changed, in a sentence."""
    peak, step = measured["peak_bytes"], measured.get("train_step_seconds", {"a": None, "b": None, "change": None})
    if peak["change"] is None:
        words = "the peak of one of them is unknown"
    elif abs(peak["change"]) < 0.005:
        words = "the same peak"
    else:
        words = f"{format_size(abs(peak['b'] - peak['a']))} {'less' if peak['change'] < 0 else 'more'} at the peak"
    if step["change"] is None:
        return f"B against A: {words}."
    if abs(step["change"]) < 0.01:
        return f"B against A: {words}, as fast."
    faster = "faster" if step["change"] < 0 else "slower"
    times = f"{seconds_words(step['a'])} to {seconds_words(step['b'])} a step"
    return f"B against A: {words}, {abs(100 * step['change']):.0f} % {faster} ({times})."
