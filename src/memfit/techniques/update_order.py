"""Weights and slots updated one after the other. Results stay the same.

TensorFlow's executor updates everything whose gradient is there, as many at once as there are threads. Each update
holds temporaries of the weight's size, Adam four: with an embedding of 10 MiB a step took 72 MiB, and in turn 67.
XLA orders the operations that it compiles by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from memfit.compat.graph_order import operation_count, operations_since, place_after
from memfit.compat.optimizers import optimizers_of
from memfit.techniques.gradient_order import UPDATES
from memfit.techniques.instance import replaced


@contextmanager
def updates_in_turn(model: Any) -> Iterator[None]:
    """Have the model's optimizers update one variable at a time in steps that are traced inside.

    For steps that have all gradients before they update: others would keep gradients longer.
    """
    with ExitStack() as stack:
        for optimizer in optimizers_of(model):
            stack.enter_context(replaced(optimizer, "apply", _in_turn(model, optimizer.apply)))
        yield


def _in_turn(model: Any, apply: Callable[..., Any]) -> Callable[..., Any]:
    def applied(*args: Any, **kwargs: Any) -> Any:
        since = operation_count()
        result = apply(*args, **kwargs)
        if since and not model.jit_compile:
            _order(operations_since(since))
        return result

    return applied


def _order(operations: list[Any]) -> None:
    """Have what is computed for an update wait for the update before it, in the order in which they were traced."""
    latest, made = None, set[int]()
    for each in operations:
        if latest is not None and each.type != "Const" and not any(id(tensor.op) in made for tensor in each.inputs):
            place_after(each, latest)
        if each.type in UPDATES:
            latest, made = each, set()
        else:
            made.add(id(each))
