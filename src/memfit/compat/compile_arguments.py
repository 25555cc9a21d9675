"""What `compile(jit_compile=...)` was given, which Keras resolves for the machine at hand and forgets."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import Any

from memfit.compat.patching import patched

_GIVEN: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def given_jit(model: Any) -> Any | None:
    """What a model was compiled with while `remembering_jit`: `"auto"`, `True` or `False`; `None` is not known."""
    return _GIVEN.get(model)


@contextmanager
def remembering_jit() -> Iterator[None]:
    """Remember the `jit_compile` of models that are compiled inside."""

    def remembered(compile_model: Callable[..., Any]) -> Callable[..., Any]:
        def compile_and_remember(model: Any, *args: Any, **kwargs: Any) -> Any:
            found = signature(compile_model).bind(model, *args, **kwargs)
            found.apply_defaults()
            result = compile_model(model, *args, **kwargs)
            _GIVEN[model] = found.arguments.get("jit_compile")
            return result

        return compile_and_remember

    with patched(import_module("keras.src.trainers.trainer").Trainer, "compile", remembered):
        yield
