"""The order in which operations were traced, also inside loops, conditions and called functions."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# What lowering puts between the name of a loop or a condition and the names in its branch: `while/body/_1/while/add`.
_BRANCH = re.compile(r"^\w+/_\d+/")

_Nodes = Mapping[str, tuple[int, Any]]


def created_at(graph_def: Any, names: Iterable[str], *, in_functions: bool) -> dict[str, int]:
    """A number for each name that was traced, rising in the order of tracing.

    Args:
        graph_def: The graph as it was traced.
        names: Names after optimisation and opening of calls: what was in a function stands behind what called it.
        in_functions: Whether to number that as well.
    """
    library = graph_def.library.function if in_functions else ()
    functions = {each.signature.name: _numbered(each.node_def) for each in library}
    traced = _numbered(graph_def.node)
    found = {name: _position(name, traced, functions) for name in names}
    ordered = sorted((position, name) for name, position in found.items() if position)
    return {name: number for number, (_, name) in enumerate(ordered)}


def _numbered(nodes: Iterable[Any]) -> _Nodes:
    return {node.name: (position, node) for position, node in enumerate(nodes)}


def _position(name: str, nodes: _Nodes, functions: Mapping[str, _Nodes]) -> tuple[int, ...]:
    """Its place, or the caller's place and then its own in there; empty if the optimiser made it."""
    if name in nodes:
        return (nodes[name][0],)
    caller = name
    while "/" in caller:
        caller = caller.rpartition("/")[0]
        if caller not in nodes:
            continue
        place, node = nodes[caller]
        inside = _BRANCH.sub("", name[len(caller) + 1 :])
        for function in _called(node):
            if found := _position(inside, functions.get(function, {}), functions):
                return (place, *found)
    return ()


def _called(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for each in value.list.func:
            yield each.name
