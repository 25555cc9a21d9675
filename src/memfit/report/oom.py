"""An out-of-memory explanation as text: at most twenty lines of a hundred columns."""

import textwrap
from typing import TYPE_CHECKING, Any

from memfit.report.plan_words import RESULTS, speed_words
from memfit.report.run_words import visible
from memfit.units import format_size, size_literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memfit.observe.oom_explanation import OomExplanation
    from memfit.planning.plan import Plan

WIDTH, MOST_LINES = 100, 20
_LABEL = 11
_UNKNOWN = "unknown"
_LONGEST_PLACE = 50
# A request below this share of the limit is not the cause.
_SMALL = 0.005


def explanation_text(found: "OomExplanation") -> str:
    """The whole of it."""
    rows = [
        *([("message", found.message, 1)] if found.asked_bytes is None else []),
        ("asked", _asked(found), 2),
        ("by", _by(found), 2),
        ("at", _where(found), 2),
        ("in use", _in_use(found), 2),
        *_predicted(found),
        *_remedy(found),
    ]
    # Names are the user's and stay text: none moves the cursor.
    lines = [_cut(visible(_headline(found)), WIDTH)]
    for label, text, most in rows:
        wrapped = textwrap.wrap(
            visible(text), WIDTH - _LABEL - 2, break_long_words=True, max_lines=most, placeholder=" …"
        )
        for at, line in enumerate(wrapped):
            lines.append(f"  {label if at == 0 else '':<{_LABEL}}{line}")
    return "\n".join(lines[:MOST_LINES])


def _headline(found: "OomExplanation") -> str:
    where = "host memory" if found.host else "memory"
    who = found.layer or found.op_type or ("the compiled step" if found.compiled else None)
    if who is None:
        return f"Out of {where} ({found.error})"
    asked = f" asked for {format_size(found.asked_bytes)}" if found.asked_bytes else " asked for more than is available"
    return f"Out of {where}: {who}{asked}{f' on {found.device}' if found.device else ''}"


def _asked(found: "OomExplanation") -> str:
    asked = format_size(found.asked_bytes)
    if found.shape is not None:
        asked += f", a tensor of shape {list(found.shape)}" + (f" and type {found.dtype}" if found.dtype else "")
    if found.asked_bytes and found.limit_bytes and found.asked_bytes < _SMALL * found.limit_bytes:
        asked += "; a small request: the memory was already full"
    return asked


def _by(found: "OomExplanation") -> str:
    if found.compiled:
        return "the whole step, compiled by XLA: all its temporaries are one request"
    if found.op is None and found.op_type is None:
        return _UNKNOWN
    what = found.op or f"{found.op_type}, run eagerly"
    owner = f", layer {found.layer}" if found.op and found.layer else f" in {found.layer}" if found.layer else ""
    return f"{what}{owner}{f', {found.part} pass' if found.part in ('forward', 'backward') else ''}"


def _where(found: "OomExplanation") -> str:
    called_at = _short(found.called_at or "")
    if found.source is None:
        return f"{called_at} (the line that was running)" if called_at else _UNKNOWN
    called = f", called from {called_at}" if called_at and found.called_at != found.source else ""
    return f"{_short(found.source)} (the line that makes the layer){called}"


def _short(place: str) -> str:
    """The end of a long path, which says the most."""
    return place if len(place) <= _LONGEST_PLACE else f"…{place[-_LONGEST_PLACE:]}"


def _in_use(found: "OomExplanation") -> str:
    limit = _UNKNOWN if found.limit_bytes is None else format_size(found.limit_bytes)
    parts = [f"{format_size(found.in_use_bytes)} now, after the error"]
    if found.peak_bytes is not None:
        parts.append(f"peak {format_size(found.peak_bytes)}")
    text = f"{', '.join(parts)}; limit {limit}"
    if found.fragmented:
        text += f"; {format_size((found.limit_bytes or 0) - (found.peak_bytes or 0))} were free, but not in one piece"
    return text


def _predicted(found: "OomExplanation") -> list[tuple[str, str, int]]:
    peak, kinds = found.predicted_peak, found.predicted_bytes
    if peak is None or kinds is None:
        return [] if found.batch_size is None else [("predicted", _UNKNOWN, 1)]
    parts = sorted(((size, kind) for kind, size in kinds.items() if size), reverse=True)
    held = ", ".join(f"{kind.replace('_', ' ')} {format_size(size)}" for size, kind in parts)
    band = f"{format_size(peak.low)} to {format_size(peak.high)}"
    rows = [
        ("predicted", f"{format_size(peak.value)} ({band}) for {found.model} at batch {found.batch_size}", 1),
        ("of which", held, 2),
    ]
    largest = "; ".join(_tensor_words(tensor) for tensor in found.largest)
    return [*rows, ("largest", largest, 2)] if largest else rows


def _tensor_words(tensor: "Mapping[str, Any]") -> str:
    owner = tensor.get("layer") or tensor.get("op")
    shape = f" {tensor['shape']}" if tensor.get("shape") else ""
    return f"{format_size(tensor['bytes'])} {owner}{shape}"


def _remedy(found: "OomExplanation") -> list[tuple[str, str, int]]:
    if found.host:
        return [
            (
                "to fit",
                "read the data in pieces instead of holding all of it: keras.utils.image_dataset_from_directory(...), "
                'or np.load("x.npy", mmap_mode="r"); no cache() without a file name, a smaller shuffle buffer',
                3,
            )
        ]
    if found.plan is not None:
        return _plan_rows(found, found.plan)
    if _ran_by_itself(found):
        needed = (found.peak_bytes or 0) + (found.asked_bytes or 0)
        memory = f", or allow at least {format_size(needed)}, which this operation needs" if needed else ""
        return [("to fit", f"run this line on fewer samples at a time{memory}", 2)]
    why = [("no plan", found.why_no_plan, 2)] if found.why_no_plan else []
    ask = "memfit.explain_oom(error, model, batch_size=...) also searches for a plan that fits"
    return [*why, ("to fit", f"{found.command}", 1), *([] if why else [("", ask, 1)])]


def _ran_by_itself(found: "OomExplanation") -> bool:
    """Whether the operation was no part of a step, and no model is known to have been trained."""
    return found.op is None and found.op_type is not None and not found.compiled and found.batch_size is None


def _plan_rows(found: "OomExplanation", plan: "Plan") -> list[tuple[str, str, int]]:
    answer = plan.prediction
    budget = format_size(found.limit_bytes)
    if answer is None or not answer.feasible:
        return [("to fit", _nothing_fits(plan, budget), 2)]
    if not plan.techniques:
        fits = f"predicted to fit {budget} without changes: something else holds memory"
        return [("to fit", f"{fits}; memfit.Recorder() and `memfit report` show what", 2)]
    price = f"{speed_words(answer.slowdown)}, {RESULTS.get(answer.grade or '', 'result unknown')}"
    peak = format_size(None if answer.peak is None else answer.peak.value)
    return [("to fit", paste_line(found, plan), 2), ("", f"predicted {peak} of {budget}, {price}", 1)]


def _nothing_fits(plan: "Plan", budget: str) -> str:
    answer = plan.prediction
    if answer is None:
        return f"no plan fits {budget}"
    smallest = dict(answer.smallest_budgets)
    needed = smallest.pop(answer.numerics, None)
    options = [f"the smallest budget is {format_size(needed)}"] if needed else []
    options += [f'numerics="{grade}" needs {format_size(size)}' for grade, size in smallest.items()][:1]
    options += [f"batch {answer.largest_batch} fits"] if answer.largest_batch else []
    return f"no {answer.numerics} plan fits {budget}: {'; '.join(options) or 'a smaller model would'}"


def paste_line(found: "OomExplanation", plan: "Plan") -> str:
    """The line of code that applies a plan: written out where that is short."""
    settings = ", ".join(f"{name}={value!r}" for name, value in plan.techniques.items())
    made = f"memfit.Plan({settings})"
    if len(made) > WIDTH // 2:
        cpu = ', gpu="cpu"' if (found.device or "").startswith("CPU") else ""
        grade = plan.prediction.numerics if plan.prediction else "exact"
        numerics = "" if grade == "exact" else f', numerics="{grade}"'
        made = f'memfit.plan(model, {found.batch_size}, "{size_literal(found.limit_bytes or 0)}"{numerics}{cpu})'
    return f"memfit.fit(model, ..., batch_size={found.batch_size}, plan={made})"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 2]} …"
