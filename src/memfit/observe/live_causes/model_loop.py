"""Models built in a loop, of which all live on or leave compiled code behind."""

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from memfit.observe.events import Finding
from memfit.observe.live_causes.view import View
from memfit.units import format_size

# An ensemble, the folds of a validation or a network with its copies have a few.
_ALIVE = 6
_DROPPED = 8
_NUMBERED = re.compile(r"_\d+$")
# What was trained stays even after `clear_session()` and `gc.collect()` (benchmarks/lint_figures.py: 362 MiB of 361).
_ONE_PROCESS_EACH = (
    "multiprocessing.get_context('spawn').Process(target=train_one, args=(...))   # one process per model"
)


def find(view: View) -> Iterator[Finding]:
    """Many models of one kind that are alive; under XLA also those that are gone."""
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for model in view.models:
        if model.built:
            key = (type(model), _NUMBERED.sub("", model.name), len(model.layers), model.count_params())
            alike[key].append(model)
    models = max(alike.values(), key=len, default=[])
    if len(models) >= _ALIVE:
        yield _alive(view, models)
        return
    dropped = _dropped(view)
    if dropped >= _DROPPED:
        yield _compiled(view, dropped)


def _alive(view: View, models: list[Any]) -> Finding:
    variables = {id(each): each for model in models for each in (*model.variables, *_optimizer_variables(model))}
    size = sum(int(each.value.dtype.size) * int(each.value.shape.num_elements()) for each in variables.values())
    compiled = any(getattr(model, "jit_compile", False) for model in models)
    cache = " XLA keeps what it compiled for each even after that; only a new process frees it." if compiled else ""
    return Finding(
        at=view.at,
        id="models-in-a-loop",
        title=f"{len(models)} models like {models[0].name!r} are alive",
        evidence=f"{len(models)} models of class {type(models[0]).__name__} with {models[0].count_params():,} "
        f"parameters each hold {format_size(size)} in variables.",
        cause=f"They were built in a loop and something still refers to each: a list, a callback, a result.{cache}",
        fix=_ONE_PROCESS_EACH,
        severity="warning",
    )


def _optimizer_variables(model: Any) -> list[Any]:
    return list(getattr(getattr(model, "optimizer", None), "variables", ()))


def _dropped(view: View) -> int:
    """How many models with a name of Keras's making are gone; it counts those it names."""
    if not any(getattr(model, "jit_compile", False) for model in view.trained):
        return 0
    state = import_module("keras.src.backend.common.global_state")
    counts = state.get_global_attribute("object_name_uids") or {}
    # A Sequential model makes a new functional one for each layer that is added.
    kind = "sequential" if counts.get("sequential") else "functional"
    alive = sum(type(model).__name__.lower() == kind for model in view.living.models)
    return max(0, int(counts.get(kind, 0)) - alive)


def _compiled(view: View, dropped: int) -> Finding:
    return Finding(
        at=view.at,
        id="models-in-a-loop",
        title=f"{dropped} models were built, compiled by XLA and dropped",
        evidence=f"Keras has named {dropped} models in this process that are gone, and the models here are compiled.",
        cause="XLA never forgets what it compiled: host memory grows by megabytes with each model (tensorflow#64170).",
        fix=_ONE_PROCESS_EACH,
        severity="note",
    )
