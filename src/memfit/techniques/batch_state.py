"""The variables that a step updates, while its batch is worked through in slices.

Every slice finds the values the batch found: seeds, counters, statistics. Afterwards each variable is updated once:
whole numbers and seeds to what every slice made of them, floating point numbers to the mean over all samples, and
metrics that layers update by what all slices added.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from memfit.compat.scope import state_scope
from memfit.framework import keras, tensorflow
from memfit.techniques.instance import replaced


class BatchState:
    """The state of a model in one traced step.

    Args:
        model: The model.
        ignored: Ids of variables that somebody else updates.
    """

    def __init__(self, model: Any, ignored: set[int]) -> None:
        self._model, self._ignored = model, ignored
        self._trainable = model.trainable_weights
        layers = model._flatten_layers()
        self._metrics = [*{id(metric): metric for layer in layers for metric in layer._metrics}.values()]
        own = {id(each) for each in self._trainable}
        known = [*model.variables, *(each for metric in self._metrics for each in metric.variables)]
        named = {id(each): each for each in known if id(each) not in own}
        self._before = {key: (each, tensorflow().convert_to_tensor(each._value)) for key, each in named.items()}
        self._updated: list[Any] = []
        self._per_call: set[int] = set()

    @contextmanager
    def as_the_batch_began(self) -> Iterator[Any]:
        """A scope in which variables have the values the batch found; updates inside are collected, not made."""
        tf = tensorflow()
        values = [*self._before.values()]
        # Keras takes what it regularises from the scope alone. Read in here, gradients reach the variable.
        values += [(each, tf.convert_to_tensor(each._value)) for each in self._trainable]
        self._per_call = set()
        with ExitStack() as stack:
            for metric in self._metrics:
                stack.enter_context(replaced(metric, "update_state", self._noted(metric, metric.update_state)))
            yield stack.enter_context(state_scope(values))

    def of_slice(self, scope: Any, share: Any) -> dict[str, list[Any]]:
        """What a slice made of the state, as `slices.Work` returns it."""
        counted = {id(each) for metric in self._metrics for each in metric.variables}
        found: dict[str, list[Any]] = {"sum": [], "latest": []}
        self._updated = []
        for variable, value in scope.updates:
            key = id(variable)
            if key in self._ignored:
                continue
            if key in counted:
                kind, change = "count", value - self._before[key][1]
                found["sum"].append(_part(change, share) if key in self._per_call else change)
            elif value.dtype.is_floating:
                kind = "mean"
                found["sum"].append(_part(value, share))
            else:
                kind = "latest"
                found["latest"].append(value)
            self._updated.append((variable, kind))
        return found

    def after(self, found: dict[str, Sequence[Any]]) -> list[tuple[Any, Any]]:
        """Variables with the values they have after the batch, from what came together of `of_slice`."""
        tf = tensorflow()
        summed, latest = iter(found["sum"]), iter(found["latest"])
        pairs = []
        for variable, kind in self._updated:
            value = tf.cast(next(latest if kind == "latest" else summed), variable._value.dtype)
            pairs.append((variable, self._before[id(variable)][1] + value if kind == "count" else value))
        return pairs

    def _noted(self, metric: Any, update: Any) -> Any:
        """Note whether a metric is updated with one value per call, such as a mean over the samples of a call."""

        def update_state(*args: Any, **kwargs: Any) -> Any:
            given = [each for each in keras().tree.flatten((args, kwargs)) if each is not None]
            if not any(len(getattr(each, "shape", ())) for each in given):
                self._per_call |= {id(each) for each in metric.variables}
            return update(*args, **kwargs)

        return update_state


def _part(value: Any, share: Any) -> Any:
    """A slice's part of a mean; a half precision number would lose digits on the way."""
    tf = tensorflow()
    if value.dtype in (tf.float16, tf.bfloat16) or not value.dtype.is_floating:
        value = tf.cast(value, tf.float32)
    return value * tf.cast(share, value.dtype)
