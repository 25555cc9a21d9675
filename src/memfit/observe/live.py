"""What is worth changing and can only be seen while the process lives."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

from memfit.observe.events import Finding
from memfit.observe.live_causes import data_placement, kept_tensors, model_loop, preprocessing, retraced_functions
from memfit.observe.live_causes.view import View
from memfit.observe.living import look_around

_CAUSES: tuple[Callable[[View], Iterator[Finding]], ...] = (
    kept_tensors.find,
    model_loop.find,
    data_placement.find,
    preprocessing.find,
    retraced_functions.find,
)


def live_findings(
    model: Any = None, *, at: float = 0.0, seconds: float = 1.0, collect: bool = True
) -> tuple[Finding, ...]:
    """Look for what holds memory by accident: call it at the end of a run, or of an epoch.

    It goes once through the objects the garbage collector knows, some tenths of a second in all, and holds on to
    none of them. When in doubt it says nothing, and it never fails.

    Args:
        model: The model that is trained; by default every compiled one that is alive is looked at.
        at: The `at` of the findings, for a record.
        seconds: The most time for going through the objects.
        collect: Whether to collect garbage first; without, what is garbage may be taken for held.

    Returns:
        The findings: `tensors-in-a-list`, `predictions-kept`, `models-in-a-loop`, `data-on-device`,
        `dataset-cache-in-ram`, `preprocessing-in-model`, `retracing`.
    """
    found: list[Finding] = []
    try:
        if collect:
            gc.collect()
        view = View(look_around(seconds), model, at)
    except Exception:  # noqa: BLE001 (looking for trouble must not make any)
        return ()
    for find in _CAUSES:
        try:
            found += find(view)
        except Exception:  # noqa: BLE001 (the same; the others may still see something)
            continue
    return tuple(found)
