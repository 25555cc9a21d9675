"""Variables made while a function is traced, without the graph that TensorFlow adds for where that fails.

`tf.function` lifts the first values of variables out of the function that makes them. For values that cannot be lifted
it adds a condition and two branches to the function for each variable (`UnliftedInitializerVariable`), which run only
when the function is called. For the 428 slots of a ResNet50's Adam that takes 2 seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memfit.compat.patching import patched

_MADE_BY = "UnliftedInitializerVariable."


@contextmanager
def only_lifted() -> Iterator[None]:
    """Leave the conditions out of functions traced inside, which must never be called.

    `get_concrete_function` lifts the values and fails where it cannot, with these conditions or without.
    """
    conditions = import_module("tensorflow.python.ops.cond")

    def without(original: Callable[..., Any]) -> Callable[..., Any]:
        def cond(predicate: Any, true_fn: Any = None, *args: Any, **kwargs: Any) -> Any:
            if getattr(true_fn, "__qualname__", "").startswith(_MADE_BY):
                return None
            return original(predicate, true_fn, *args, **kwargs)

        return cond

    with patched(conditions, "cond", without):
        yield
