"""Loops made straight: the body once, and what it keeps for the backward pass as often as it turns.

A lowered `while` is a ring of Enter, Merge, Switch, NextIteration and Exit. Its turns take the same memory one after
the other, except for what they push onto lists for the gradient: that stays, one element a turn, until it is popped.
"""

from collections.abc import Iterable
from typing import Any

_POP = "TensorListPopBack"
_PASSES_ON = ("Identity", "Enter", "Exit", "NextIteration", "IdentityN")
_CONDITION = ("LoopCond", "LogicalAnd", "Less", "Merge", "Enter", "Identity")
# Operation type to the position of the element it puts onto its list.
_ELEMENT = {"TensorListPushBack": 1, "TensorListSetItem": 2}
# What every turn reads again is one buffer, however often it is pushed.
_THE_SAME_EVERY_TURN = ("ReadVariableOp", "Const")


def straighten(graph_def: Any, wanted: Iterable[str]) -> dict[str, int]:
    """Cut every loop open in place.

    Args:
        graph_def: An optimised graph; changed.
        wanted: The names that have to stay.

    Returns:
        For each operation that puts an element onto a list in a loop, how often it does.
    """
    nodes = {node.name: node for node in graph_def.node}
    rings = {
        node.name: (node.input[0], node.input[1])
        for node in nodes.values()
        if node.op == "Merge" and len(node.input) == 2 and nodes[_name(node.input[1])].op == "NextIteration"
    }
    if not rings:
        return {}
    turns = _turns(nodes)
    switches = {node.name: _name(node.input[0]) for node in nodes.values() if node.op == "Switch"}
    switches = {name: merge for name, merge in switches.items() if merge in rings}
    gone = {*rings, *switches}
    for node in nodes.values():
        inputs = [_rewired(each, node, nodes, rings, switches) for each in node.input]
        node.ClearField("input")
        node.input.extend(each for each in inputs if not (each.startswith("^") and each[1:] in gone))
    for node in nodes.values():
        if node.op == _POP:
            _pop_what_was_pushed(node, nodes)
    carried = {_name(entered) for entered, next_turn in rings.values() if _changes(entered, next_turn, nodes)}
    repeats = {}
    for node in nodes.values():
        if node.op in _ELEMENT:
            element = _source(node.input[_ELEMENT[node.op]], nodes)
            same = element.op in _THE_SAME_EVERY_TURN or (element.op == "Enter" and element.name not in carried)
            count = 1 if same else _places(node, nodes, turns)
            if count > 1:
                repeats[node.name] = count
    _prune(graph_def, nodes, wanted)
    return repeats


def with_lists(properties: dict[str, Any], graph_def: Any, repeats: dict[str, int]) -> dict[str, Any]:
    """Give lists the size of what is on them after the last turn, now that the shapes of the elements are known."""
    changed = dict(properties)
    for node in graph_def.node:
        if node.op == "IdentityN" and node.name.rpartition("/")[2].startswith(_POP):
            node.op = _POP
        if node.name in repeats:
            source, _, output = node.input[_ELEMENT[node.op]].partition(":")
            element = properties[source][int(output or 0)]
            if element.shape.unknown_rank:
                continue  # the shape of something: a few bytes, in host memory on a GPU
            stacked = type(element)()
            stacked.dtype = element.dtype
            stacked.shape.dim.add().size = repeats[node.name]
            stacked.shape.dim.extend(element.shape.dim)
            changed[node.name] = [stacked]
    return changed


def _name(endpoint: str) -> str:
    return endpoint.lstrip("^").partition(":")[0]


def _rewired(
    endpoint: str, node: Any, nodes: dict[str, Any], rings: dict[str, tuple[str, str]], switches: dict[str, str]
) -> str:
    """Into the body goes what entered the loop, and out of it what the body made."""
    name = _name(endpoint)
    if endpoint.startswith("^") or name not in switches:
        return endpoint
    entered, next_turn = rings[switches[name]]
    return str(nodes[_name(next_turn)].input[0]) if node.op == "Exit" else entered


def _source(endpoint: str, nodes: dict[str, Any]) -> Any:
    node = nodes[_name(endpoint)]
    while node.op in ("Identity", "Exit", "NextIteration") and node.input:
        node = nodes[_name(node.input[0])]
    return node


def _pop_what_was_pushed(node: Any, nodes: dict[str, Any]) -> None:
    """A pop gives the element back; until shapes are inferred it stands as an identity of list and element."""
    from tensorflow.core.framework import types_pb2

    found = nodes[_name(node.input[0])]
    while found.op in _PASSES_ON and found.input:
        found = nodes[_name(found.input[0])]
    if found.op not in _ELEMENT:
        return
    element = found.input[_ELEMENT[found.op]]
    dtype = node.attr["element_dtype"].type
    inputs = [node.input[0], element]
    node.ClearField("input")
    node.input.extend(inputs)
    node.op = "IdentityN"
    node.attr.clear()
    node.attr["T"].list.type.extend([types_pb2.DT_VARIANT, dtype])


def _changes(entered: str, next_turn: str, nodes: dict[str, Any]) -> bool:
    """Whether a value that goes around is another one after each turn."""
    return bool(_source(nodes[_name(next_turn)].input[0], nodes).name != _name(entered))


def _places(node: Any, nodes: dict[str, Any], turns: dict[str, int]) -> int:
    """How many elements a list has in the end: one a turn, or as many as were reserved."""
    from tensorflow.python.framework import tensor_util

    found = nodes[_name(node.input[0])]
    frame = None
    while found.op in (*_PASSES_ON, *_ELEMENT) and found.input:
        if found.op == "Enter" and frame is None:
            frame = found.attr["frame_name"].s.decode()
        found = nodes[_name(found.input[0])]
    if found.op == "TensorListReserve":
        size = nodes[_name(found.input[1])]
        return int(tensor_util.MakeNdarray(size.attr["value"].tensor)) if size.op == "Const" else 1
    return turns.get(frame or "", 1)


def _turns(nodes: dict[str, Any]) -> dict[str, int]:
    """How often each loop turns, where its condition compares with a constant."""
    from tensorflow.python.framework import tensor_util

    turns = {}
    for condition in (node for node in nodes.values() if node.op == "LoopCond"):
        frames, bounds, stack, seen = set(), [], [condition.name], set()
        while stack:
            node = nodes[stack.pop()]
            if node.name in seen:
                continue
            seen.add(node.name)
            if node.op == "Const":
                value = tensor_util.MakeNdarray(node.attr["value"].tensor)
                bounds += [int(value)] if value.ndim == 0 and value.dtype.kind == "i" and value > 1 else []
            elif node.op in _CONDITION:
                if node.op == "Enter":
                    frames.add(node.attr["frame_name"].s.decode())
                stack += [_name(each) for each in node.input if not each.startswith("^")]
        if bounds:
            turns.update(dict.fromkeys(frames, min(bounds)))
    return turns


def _prune(graph_def: Any, nodes: dict[str, Any], wanted: Iterable[str]) -> None:
    """Leave what the wanted names still need; the conditions and counters of the loops are gone."""
    stack, kept = [_name(each) for each in wanted], set()
    while stack:
        name = stack.pop()
        if name not in kept and name in nodes:
            kept.add(name)
            stack += [_name(each) for each in nodes[name].input]
    remaining = [node for node in graph_def.node if node.name in kept]
    copies = [type(node).FromString(node.SerializeToString()) for node in remaining]
    del graph_def.node[:]
    graph_def.node.extend(copies)
