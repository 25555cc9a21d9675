"""Operations that do not do the same when they run again: they draw other random numbers, or write another time."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from memfit.errors import InputError
from memfit.framework import tensorflow

# TensorFlow's own names. Those that begin with Stateless take their seed as an input and do repeat.
_DRAWS = re.compile(
    r"^(?!Stateless).*(Random|Multinomial|TruncatedNormal|CandidateSampler|SampleDistorted|NonDeterministic)"
    r"|^Stateful(Uniform|StandardNormal|TruncatedNormal)|^Rng"
)
_WRITES = re.compile(
    r"^Assign\w*Variable|^Resource(Scatter|Apply|StridedSliceAssign|SparseApply)|^LookupTable(Insert|Im)"
)


@contextmanager
def refuse_unrepeatable(layer: str) -> Iterator[None]:
    """Refuse a layer's call if it adds operations to the graph that must not run twice.

    Args:
        layer: Its name, for the message.

    Raises:
        InputError: If the call draws with `tf.random` or writes to a variable that is not Keras's.
    """
    tf = tensorflow()
    if tf.executing_eagerly():
        # Operations leave no trace there.
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    yield
    kinds = _kinds(graph, graph.get_operations()[before:])
    for pattern, does, instead in (
        (_DRAWS, "draws random numbers with TensorFlow's", "Use keras.random with a keras.random.SeedGenerator"),
        (_WRITES, "writes to a tf.Variable with", "Use a variable made by the layer's add_weight"),
    ):
        if operation := next((kind for kind in kinds if pattern.search(kind)), None):
            error = InputError(
                f"remat cannot recompute the layer {layer!r}: it {does} {operation}, which does something else when it "
                f"runs again. {instead} in its call, or pass remat the names of other layers."
            )
            error._keras_call_info_injected = True  # type: ignore[attr-defined]  # or Keras wraps it up
            raise error


def _kinds(graph: Any, operations: Iterable[Any]) -> list[str]:
    """The types of operations, with those in the functions that they call."""
    kinds = [operation.type for operation in operations]
    waiting = [name for operation in operations for name in _called(operation.node_def)]
    known: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in known or name not in graph._functions:
            continue
        known.add(name)
        for node in graph._functions[name].cached_definition.node_def:
            kinds.append(node.op)
            waiting.extend(_called(node))
    return kinds


def _called(node: Any) -> list[str]:
    return [
        function.name
        for attribute in node.attr.values()
        for function in (attribute.func, *attribute.list.func)
        if function.name
    ]
