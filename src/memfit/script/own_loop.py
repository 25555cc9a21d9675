"""Training loops of a script's own, without `fit`: noticed once, and told what memfit can do for them."""

import threading
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from inspect import signature
from typing import Any

from memfit.estimation.estimate import estimate
from memfit.framework import keras, tensorflow
from memfit.random_state import random_state_kept
from memfit.trace.function import is_tracing
from memfit.units import format_size

Say = Callable[[str], None]

_PLAIN = (
    "this script trains in its own loop, without model.fit: memfit can watch such a loop and explain an out-of-memory "
    "error, but it cannot plan it"
)
_FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"


def watch_own_loops(say: Say, limit: int | None, in_fit: Callable[[], bool]) -> None:
    """Notice the first training step outside of `fit`, tell about it once, and stop watching.

    A step is an `apply` or `apply_gradients` of a Keras optimizer, or a gradient taken of variables. If it is inside of
    a `tf.function`, the largest batch that fits the limit is predicted after its first call: the function is traced
    once more and not run. What goes wrong in that is not reported.

    Args:
        say: Is told one sentence.
        limit: The memory that TensorFlow may use; `None` where it is unknown.
        in_fit: Whether this thread is inside of `fit`, `evaluate` or `predict`.

    Example:
        ```python
        watch_own_loops(print, limit=8 * 2**30, in_fit=lambda: False)
        ```
    """
    _Watch(say, limit, in_fit).begin()


class _Watch:
    def __init__(self, say: Say, limit: int | None, in_fit: Callable[[], bool]) -> None:
        self._say, self._limit, self._in_fit = say, limit, in_fit
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._over = False
        self._puts: list[tuple[Any, str, Any, Any]] = []

    def begin(self) -> None:
        """Put ourselves around what a step calls."""
        optimizer = keras().optimizers.Optimizer
        for name in ("apply", "apply_gradients"):
            self._put(optimizer, name, self._noticing(getattr(optimizer, name), lambda *_, **__: True))
        tape = tensorflow().GradientTape
        self._put(tape, "gradient", self._noticing(tape.gradient, _is_of_variables))
        function = import_module(_FUNCTIONS).Function
        self._put(function, "__call__", self._called(function.__call__))

    def _put(self, owner: Any, name: str, wrapper: Any) -> None:
        self._puts.append((owner, name, getattr(owner, name), wrapper))
        setattr(owner, name, wrapper)

    def _end(self) -> bool:
        """Take everything off again; whether that was for us to do."""
        with self._lock:
            if self._over:
                return False
            self._over = True
            for owner, name, original, wrapper in self._puts:
                # Whoever came after us keeps what they have put on; ours then only passes calls on.
                if getattr(owner, name) is wrapper:
                    setattr(owner, name, original)
            return True

    def _noticing(self, original: Callable[..., Any], is_step: Callable[..., bool]) -> Callable[..., Any]:
        @wraps(original)
        def noticing(*arguments: Any, **options: Any) -> Any:
            if not self._over and not self._in_fit() and not is_tracing() and is_step(*arguments, **options):
                if getattr(self._thread, "inside", False):
                    self._thread.noticed = True  # told when the outermost function is done
                elif self._end():
                    self._say(_PLAIN)
            return original(*arguments, **options)

        return noticing

    def _called(self, original: Callable[..., Any]) -> Callable[..., Any]:
        thread = self._thread

        @wraps(original)
        def called(function: Any, *arguments: Any, **options: Any) -> Any:
            if self._over or getattr(thread, "inside", False) or is_tracing():
                return original(function, *arguments, **options)
            thread.inside, thread.noticed, told = True, False, _PLAIN
            try:
                result = original(function, *arguments, **options)
                if thread.noticed and not self._over:
                    told = self._sentence(function, arguments, options)
                return result
            finally:
                thread.inside = False
                if thread.noticed and self._end():
                    self._say(told)

        return called

    def _sentence(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
        if self._limit is None:
            return _PLAIN
        try:
            with random_state_kept():
                largest, name, size = _largest_batch(function, arguments, options, self._limit)
        except Exception:  # noqa: BLE001 (help that must not stop the script)
            return _PLAIN
        if not largest:
            return f"{_PLAIN}; {name} does not fit {format_size(self._limit)} at any batch size, by prediction"
        return (
            f"{_PLAIN}; the predicted largest batch of {name} in {format_size(self._limit)} is {largest}, "
            f"and this step has {size}"
        )


def _is_of_variables(_: Any, target: Any = None, sources: Any = None, *__: Any, **___: Any) -> bool:
    """Whether a gradient is that of a training step; one of an image shows what a model looks at."""
    del target
    kinds = (tensorflow().Variable, keras().Variable)
    return any(isinstance(each, kinds) for each in tensorflow().nest.flatten(sources))


def _largest_batch(
    function: Any, arguments: tuple[Any, ...], options: dict[str, Any], limit: int
) -> tuple[int, str, int]:
    """The largest batch of a step under a limit, the name of the step, and its batch now."""
    tf = tensorflow()
    plain = function.python_function
    given = signature(plain).bind(*arguments, **options).arguments
    fixed = {name: value for name, value in given.items() if not _is_tensors(value)}
    data = {name: value for name, value in given.items() if name not in fixed}
    step = partial(plain, **fixed) if fixed else plain
    gpu = None if tf.config.get_visible_devices("GPU") else "cpu"
    predicted = estimate(step, data=data, gpu=gpu, jit=bool(function._jit_compile))
    return predicted.max_batch(limit), predicted.model_name, predicted.batch_size


def _is_tensors(value: Any) -> bool:
    leaves = tensorflow().nest.flatten(value)
    return bool(leaves) and all(hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves)
