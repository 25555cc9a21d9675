"""Custom gradients that go away with their graph.

TensorFlow registers every custom gradient of a graph under a name of its own for as long as the process lives
(`_graph_mode_decorator` in `custom_gradient.py`), and with it the graph and the model. Keras's optimizers sum gradients
in one, so every traced step stays: 5 MB for a small network.
"""

import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

from memfit.framework import tensorflow

Gradient = Callable[..., Any]

_KEPT = "memfit_custom_gradients"
_LOCK = threading.Lock()


@contextmanager
def gradients_kept_by_graphs() -> Iterator[None]:
    """Let graphs that are traced inside keep their custom gradients themselves."""
    registered = import_module("tensorflow.python.framework.ops").gradient_registry._registry
    before = len(registered)
    try:
        yield
    finally:
        if len(registered) > before:
            with _LOCK:
                # A dictionary keeps its order: the new ones are the last.
                for entry in list(islice(registered.values(), before, None)):
                    _move_to_graph(entry)


def _move_to_graph(entry: dict[str, Any]) -> None:
    """Have a graph keep a gradient, and the registry find it there."""
    graph = _graph_of(entry["type"])
    if graph is None:
        return
    kept = graph.get_collection_ref(_KEPT)
    kept.append(entry["type"])
    # A graph may be differentiated later, as a part of another one: a `tf.function` that a layer calls.
    entry["type"] = _KeptGradient(graph, len(kept) - 1)


class _KeptGradient:
    """A gradient that a graph keeps."""

    def __init__(self, graph: Any, place: int) -> None:
        self._graph, self._place = weakref.ref(graph), place

    def __call__(self, *arguments: Any) -> Any:
        graph = self._graph()
        if graph is None:
            raise LookupError("the graph of this gradient was deleted")
        return graph.get_collection_ref(_KEPT)[self._place](*arguments)


def _graph_of(gradient: Gradient) -> Any:
    """The graph a custom gradient was registered for; `None` for all others."""
    if getattr(gradient, "__qualname__", "") != "_graph_mode_decorator.<locals>.internal_grad_fn":
        return None
    of_tape = inspect.getclosurevars(gradient).nonlocals["tape_grad_fn"]
    results = tensorflow().nest.flatten(inspect.getclosurevars(of_tape).nonlocals["result"], expand_composites=True)
    graph = next((each.graph for each in results if isinstance(each, tensorflow().Tensor)), None)
    # Those of loops and branches are copied when they are differentiated, and may be gone by then.
    inner = import_module("tensorflow.python.ops.control_flow_v2_func_graphs").ControlFlowFuncGraph
    while isinstance(graph, inner):
        graph = graph.outer_graph
    return graph
