"""What was predicted of a run's models, next to what was measured; the two never share a field name."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memfit.report.run_series import by_layer

if TYPE_CHECKING:
    from memfit.observe.record import Model, Record, Steps


def predicted_and_measured(model: "Model", steps: "Sequence[Steps]") -> list[dict[str, Any]]:
    """Each peak that was predicted, with its band, and the measured one."""
    estimate = _mapping(model.estimate)
    plan = recorded_plan(model.plan) or {}
    phases = _mapping(estimate.get("phases"))
    train = [line for line in steps if line.phase == "train"]
    # In the first step kernels are tried out, so it is no part of the steady state.
    first, steady = _peak(train[:1]), _peak(train[1:])
    rows = []
    planned = bool(plan.get("techniques")) and plan.get("predicted_peak_bytes") is not None
    if planned:
        rows.append(_row("steady peak, planned", plan, "predicted_peak", steady))
        rows.append({**_row("steady peak, plain", plan, "plain_peak", None), "not_run": True})
    elif estimate:
        rows.append(_row("steady peak", estimate, "steady_peak", steady, low="low", high="high"))
        names = {"low": "first_step_low", "high": "first_step_high"}
        rows.append(_row("first step", estimate, "first_step_peak", first, **names))
    for name, phase in (("evaluate", "validation"), ("predict", "predict")):
        if predicted := _mapping(phases.get(name)):
            lines = [line for line in steps if line.phase == phase]
            row = _row(phase, predicted, "steady_peak", _peak(lines), low="low", high="high")
            rows.append({**row, "not_run": not lines})
    return rows


def recorded_plan(plan: Any) -> dict[str, Any] | None:
    """A plan as a record holds it; what is not as `Plan.to_dict` writes it is left out."""
    if not isinstance(plan, Mapping):
        return None
    numbers = ("predicted_peak_bytes", "predicted_slowdown")

    def rows(name: str, *words: str) -> list[dict[str, Any]]:
        found = plan.get(name)
        return [
            {**{word: str(each.get(word, "")) for word in words}, **{key: _number(each.get(key)) for key in numbers}}
            for each in (found if isinstance(found, list) else ())
            if isinstance(each, Mapping)
        ]

    return {
        **{name: _number(value) if name.endswith("_bytes") else value for name, value in plan.items()},
        "predicted_slowdown": _number(plan.get("predicted_slowdown")),
        "techniques": dict(_mapping(plan.get("techniques"))),
        "parts": rows("parts", "technique", "why", "grade"),
        "rejected": rows("rejected", "what", "why"),
        "smallest_budget_bytes": dict(_mapping(plan.get("smallest_budget_bytes"))),
    }


def predicted_at_peak(record: "Record") -> dict[str, Any] | None:
    """What the last estimate says is in memory at the peak; `None` if there is none."""
    for model in reversed(record.models):
        estimate = _mapping(model.estimate)
        if kinds := _mapping(estimate.get("breakdown")):
            largest = [each for each in estimate.get("largest") or () if isinstance(each, Mapping)]
            return {
                "model": model.model,
                "kinds": {name.removesuffix("_bytes"): size for name, size in kinds.items() if _number(size)},
                "predicted_peak_bytes": _number(estimate.get("steady_peak_bytes")),
                "tensors": [
                    {
                        "part": None,
                        **{key: each.get(key) for key in _TENSOR},
                        "predicted_bytes": _number(each.get("bytes")) or 0,
                    }
                    for each in largest
                ],
                "by_layer": by_layer(
                    (each.get("layer"), str(each.get("kind")), _number(each.get("bytes")) or 0) for each in largest
                ),
            }
    return None


_TENSOR = ("op", "op_type", "layer", "kind", "shape", "dtype")


def _row(
    what: str, source: Mapping[str, Any], name: str, measured: int | None, *, low: str = "", high: str = ""
) -> dict[str, Any]:
    predicted = _number(source.get(f"{name}_bytes"))
    low_bytes = _number(source.get(f"{low or name + '_low'}_bytes"))
    high_bytes = _number(source.get(f"{high or name + '_high'}_bytes"))
    inside = None
    if measured is not None and low_bytes is not None and high_bytes is not None:
        inside = low_bytes <= measured <= high_bytes
    return {
        "what": what,
        "predicted_bytes": predicted,
        "predicted_low_bytes": low_bytes,
        "predicted_high_bytes": high_bytes,
        "measured_bytes": measured,
        "difference": predicted / measured - 1 if predicted and measured else None,
        "inside_band": inside,
        "not_run": False,
    }


def _peak(lines: "Sequence[Steps]") -> int | None:
    return max((line.peak_bytes for line in lines if line.peak_bytes is not None), default=None)


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    """What a record holds where a dictionary belongs; anything else counts as nothing."""
    return value if isinstance(value, Mapping) else {}
