"""The user's own `tf.function`s, and predictions, that are traced again and again."""

from collections.abc import Iterator
from typing import Any

from memfit.observe.causes.retracing import BATCHES_DIFFER, VALUES_DIFFER
from memfit.observe.events import Finding, Phase
from memfit.observe.live_causes.view import View
from memfit.observe.retraces import step_function

# A function may well have a few signatures; TensorFlow itself warns from five in a row on.
_LEAST = 8
_FRAMEWORKS = ("keras", "tensorflow", "memfit")
_PHASES: tuple[Phase, ...] = ("train", "validation", "predict")


def find(view: View) -> Iterator[Finding]:
    """Every trace is kept as long as its function."""
    counted: list[tuple[int, str, tuple[str, str]]] = []
    for each in view.living.functions:
        if own := _users_name(each):
            counted.append((each.experimental_get_tracing_count(), own, VALUES_DIFFER))
    for model in view.models:
        for phase in _PHASES:
            function = step_function(model, phase)
            if function is not None:
                step = f"the {phase} step of {model.name}"
                counted.append((function.experimental_get_tracing_count(), step, BATCHES_DIFFER))
    count, name, (cause, fix) = max(counted, key=lambda each: each[0], default=(0, "", VALUES_DIFFER))
    if count < _LEAST:
        return
    yield Finding(
        at=view.at,
        id="retracing",
        title=f"{name} was traced {count} times",
        evidence=f"TensorFlow holds {count} traces of {name}.",
        cause=cause,
        fix=fix,
        severity="warning",
    )


def _users_name(function: Any) -> str | None:
    python = getattr(function, "python_function", None)
    module = str(getattr(python, "__module__", ""))
    if python is None or module.partition(".")[0] in _FRAMEWORKS:
        return None
    return f"{getattr(python, '__qualname__', 'a function')}()"
