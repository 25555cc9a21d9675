"""A model's optimizers, and their slots, created whole or not at all."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from memfit.framework import keras


def optimizers_of(model: Any) -> list[Any]:
    """The optimizers of a model: the compiled one, and those it keeps as attributes, as GANs do."""
    kind = keras().optimizers.Optimizer
    held = [getattr(model, "optimizer", None)]
    for value in vars(model).values():
        held += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    return list({id(each): each for each in held if isinstance(each, kind)}.values())


@contextmanager
def built_whole(optimizers: Iterable[Any]) -> Iterator[None]:
    """Leave optimizers as they were where building them inside fails.

    Keras says that an optimizer is built before its slots are there (`BaseOptimizer.build`). Where memory runs out in
    between, nothing can be trained with it any more.
    """
    with ExitStack() as stack:
        for each in optimizers:
            if not each.built:
                stack.enter_context(_as_before_unless_whole(each))
        yield


@contextmanager
def _as_before_unless_whole(optimizer: Any) -> Iterator[None]:
    before = dict(vars(optimizer))
    entries = {name: list(value) for name, value in before.items() if isinstance(value, list)}
    try:
        yield
    except Exception:
        for name in [each for each in vars(optimizer) if each not in before]:
            del vars(optimizer)[name]
        vars(optimizer).update(before)
        for name, value in entries.items():
            before[name][:] = value
        raise
