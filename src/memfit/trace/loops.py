"""Loops made straight: the body once, and what it keeps for the backward pass as often as it turns.

A lowered `while` is a ring of Enter, Merge, Switch, NextIteration and Exit for each of its variables. Its turns take
the same memory one after the other, except for what they push onto lists for the gradient: that stays, one element a
turn, until it is popped. The turn that stands for all is one in the middle: what changes from turn to turn has a buffer
of its own then, even if it began as a constant. Where one turn runs at a time, nothing leaves before the last is done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from memfit.trace.shapes import Known, Shape, complete
from memfit.trace.step import AHEAD

_POP = "TensorListPopBack"
_PASSES_ON_INSIDE = ("Identity", "IdentityN", "Exit", "NextIteration")
_PASSES_ON = (*_PASSES_ON_INSIDE, "Enter")
_CONDITION = ("LoopCond", "LogicalAnd", "Less", "Merge", "Enter", "Identity")
# Operation type to the position of the element it puts onto its list.
_ELEMENT = {"TensorListPushBack": 1, "TensorListSetItem": 2}
_HANDLE, _LIST = 20, 21  # DT_RESOURCE and DT_VARIANT of types.proto
_FLOATS = (1, 2, 14, 19)  # DT_FLOAT, DT_DOUBLE, DT_BFLOAT16, DT_HALF
# What every turn reads again is one buffer, however often it is pushed.
_THE_SAME_EVERY_TURN = ("ReadVariableOp", "Const", "Enter")
_SUMS = ("AddN", "AddV2", "Add")
_FROM_LIST = ("TensorListGetItem", "TensorListStack", "TensorListConcatV2")


def straighten(graph_def: Any, wanted: Iterable[str]) -> dict[str, int]:
    """Cut every loop open in place.

    Args:
        graph_def: An optimised graph; changed.
        wanted: The names that have to stay.

    Returns:
        For each operation that puts an element onto a list in a loop, how often it does.
    """
    nodes = {node.name: node for node in graph_def.node}
    rings = [_ring(node, nodes) for node in graph_def.node if _closes_a_ring(node, nodes)]
    if not rings:
        return {}
    turns = _turns(nodes)
    # A gradient's loop turns as often as the one it belongs to, but counts in another way.
    in_turn = {ring.frame for ring in rings if ring.one_turn_at_a_time}
    most = max((count for frame, count in turns.items() if frame not in in_turn), default=1)
    at_once = _loops_at_once(nodes)
    for ring in rings:
        _mark_ahead(ring, nodes, turns.get(ring.frame, most), at_once[ring.frame])
    frames = dict.fromkeys(ring.frame for ring in rings if ring.one_turn_at_a_time)
    added = [_end(frame, rings, graph_def.node) for frame in frames]
    added += [_own_buffer(ring) for ring in rings if ring.changes and ring.dtype not in (_HANDLE, _LIST)]
    nodes |= {node.name: node for node in added}
    _cut(nodes, rings)
    for node in nodes.values():
        if node.op == _POP:
            _pop_what_was_pushed(node, nodes)
    repeats = {}
    for node in nodes.values():
        if node.op in _ELEMENT:
            element = nodes[_name(_source(node.input[_ELEMENT[node.op]], nodes))]
            count = 1 if element.op in _THE_SAME_EVERY_TURN else _places(node, nodes, turns)
            if count > 1:
                repeats[node.name] = count
    _prune(graph_def, nodes, wanted)
    return repeats


def with_lists(properties: dict[str, Any], graph_def: Any, repeats: dict[str, int]) -> dict[str, Any]:
    """Give lists the size of what is on them after the last turn, now that the shapes of the elements are known."""
    properties = complete(properties, graph_def, partial(_from_list, repeats=repeats))
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
            stacked.shape.dim.extend(element.shape.dim)
            if not element.shape.dim:
                stacked.shape.dim.add().size = 1
            # Behind each other, so that the rows of all slices of a batch are seen to be as many as the batch has.
            stacked.shape.dim[0].size *= repeats[node.name]
            changed[node.name] = [stacked]
    return changed


def _from_list(node: Any, known: Known, repeats: Mapping[str, int]) -> tuple[Shape, ...] | None:
    """The shape of an element of a list, or of all of them behind each other, and of how long they are."""
    found = _list_source(node.input[0], known.nodes) if node.op in _FROM_LIST else None
    if found is None:
        return None
    shape = known.shape(found.input[_ELEMENT.get(found.op, 0)])
    if not shape:
        return None
    count, element = (repeats.get(found.name, 1), shape) if found.op in _ELEMENT else (shape[0], shape[1:])
    if node.op == "TensorListGetItem":
        return (element,)
    if node.op == "TensorListStack":
        return ((count, *element),)
    return (count * element[0], *element[1:]), (count,)


def _list_source(endpoint: str, nodes: Mapping[str, Any]) -> Any | None:
    """What a list gets its elements from."""
    waiting, seen = [endpoint], set()
    while waiting:
        node = nodes[_name(_source(waiting.pop(), nodes, _PASSES_ON))]
        if node.op in (*_ELEMENT, "TensorListFromTensor"):
            return node
        if node.op in (*_SUMS, "ZerosLike") and node.name not in seen:
            seen.add(node.name)
            waiting += [each for each in node.input if not each.startswith("^")]
    return None


def _name(endpoint: str) -> str:
    return endpoint.lstrip("^").partition(":")[0]


@dataclass
class _Ring:
    """The way of one variable around a loop."""

    merge: Any
    enter: Any
    next_turn: Any
    changes: bool
    """Whether it is another value after each turn."""
    into_body: str
    out_of_loop: str

    @property
    def frame(self) -> str:
        return str(self.enter.attr["frame_name"].s.decode())

    @property
    def turns_at_a_time(self) -> int:
        return int(self.enter.attr["parallel_iterations"].i)

    @property
    def one_turn_at_a_time(self) -> bool:
        return self.turns_at_a_time == 1

    @property
    def dtype(self) -> int:
        return int(self.merge.attr["T"].type)


def _closes_a_ring(node: Any, nodes: Mapping[str, Any]) -> bool:
    return node.op == "Merge" and len(node.input) == 2 and nodes[_name(node.input[1])].op == "NextIteration"


def _ring(merge: Any, nodes: Mapping[str, Any]) -> _Ring:
    enter, next_turn = (nodes[_name(each)] for each in merge.input)
    source = nodes[_name(_source(next_turn.input[0], nodes))]
    changes = source.op != "Switch" or _name(source.input[0]) != merge.name
    return _Ring(merge, enter, next_turn, changes, enter.name, next_turn.input[0])


def _mark_ahead(ring: _Ring, nodes: Mapping[str, Any], turns: int, at_once: int) -> None:
    """Mark what a sum over all turns is made of.

    Nothing waits for the sum but its next turn, so that turns get ahead of it, as many as may run at once: the
    gradients of a recurrent layer's weights pile up, unless a thread has the time to add them.
    """
    total = nodes[_name(_source(ring.next_turn.input[0], nodes))]
    if not ring.changes or total.op not in _SUMS or ring.dtype not in _FLOATS:
        return
    added = [nodes[_name(_source(each, nodes))] for each in total.input if not each.startswith("^")]
    terms = [each for each in added if each.op != "Switch" or _name(each.input[0]) != ring.merge.name]
    if len(terms) < len(added):
        for term in terms:
            del term.attr[AHEAD].list.i[:]
            term.attr[AHEAD].list.i.extend((min(turns, ring.turns_at_a_time), at_once))


def _loops_at_once(nodes: Mapping[str, Any]) -> dict[str, int]:
    """For each loop, how many may run at the same time with it: those that neither need it nor are needed by it."""
    consumers: dict[str, list[str]] = {name: [] for name in nodes}
    frames: dict[str, list[str]] = {}
    for node in nodes.values():
        for each in node.input:
            consumers[_name(each)].append(node.name)
        if node.op == "Enter":
            frames.setdefault(node.attr["frame_name"].s.decode(), []).append(node.name)
    entered = {name: frame for frame, names in frames.items() for name in names}

    def needing(frame: str) -> set[str]:
        pending, seen = list(frames[frame]), set(frames[frame])
        while pending:
            for consumer in consumers[pending.pop()]:
                if consumer not in seen:
                    seen.add(consumer)
                    pending.append(consumer)
        return {entered[name] for name in seen if name in entered}

    found = {frame: needing(frame) for frame in frames}
    return {
        frame: 1 + sum(frame not in found[other] and other not in found[frame] for other in frames) for frame in frames
    }


def _end(frame: str, rings: Iterable[_Ring], nodes: Iterable[Any]) -> Any:
    """What everything that leaves the loop waits for; until then it holds what goes around and what is always there."""
    around = [ring for ring in rings if ring.frame == frame and ring.dtype != _HANDLE]
    always = [node for node in nodes if _is_always_there(node, frame)]
    end = type(around[0].merge)(name=f"{frame}/end_of_loop", op="IdentityN", device=around[0].merge.device)
    end.attr["T"].list.type.extend([*(ring.dtype for ring in around), *(node.attr["T"].type for node in always)])
    end.input.extend([*(ring.out_of_loop for ring in around), *(node.name for node in always)])
    effects = (each for ring in around for each in ring.next_turn.input if each.startswith("^"))
    end.input.extend(dict.fromkeys(effects))
    for position, ring in enumerate(around):
        ring.out_of_loop = f"{end.name}:{position}"
    return end


def _is_always_there(node: Any, frame: str) -> bool:
    if node.op != "Enter" or not node.attr["is_constant"].b or node.attr["T"].type == _HANDLE:
        return False
    return bool(node.attr["frame_name"].s.decode() == frame)


def _own_buffer(ring: _Ring) -> Any:
    """A buffer of the variable's size: the one it had, unless that is a constant or somebody else's too."""
    own = type(ring.merge)(name=f"{ring.enter.name}/own_buffer", op="ZerosLike", device=ring.merge.device)
    own.input.append(ring.into_body)
    own.attr["T"].type = ring.dtype
    ring.into_body = own.name
    return own


def _cut(nodes: Mapping[str, Any], rings: Iterable[_Ring]) -> None:
    """Into the body goes what entered the loop, and out of it what the body made."""
    by_merge = {ring.merge.name: ring for ring in rings}
    switches = {node.name: by_merge.get(_name(node.input[0])) for node in nodes.values() if node.op == "Switch"}
    within = {name: ring for name, ring in switches.items() if ring is not None} | by_merge

    def rewired(endpoint: str, node: Any) -> str:
        ring = within.get(_name(endpoint))
        if ring is None:
            return endpoint
        if endpoint.startswith("^"):
            return f"^{_name(ring.into_body)}"
        return ring.out_of_loop if node.op == "Exit" else ring.into_body

    for node in nodes.values():
        inputs = [rewired(each, node) for each in node.input]
        data = [each for each in inputs if not each.startswith("^")]
        node.ClearField("input")
        node.input.extend([*data, *dict.fromkeys(each for each in inputs if each.startswith("^"))])


def _source(endpoint: str, nodes: Mapping[str, Any], passing: Sequence[str] = _PASSES_ON_INSIDE) -> str:
    """Where a value comes from that some operations only pass on."""
    node = nodes[_name(endpoint)]
    while node.op in passing and node.input:
        output = int(endpoint.partition(":")[2] or 0)
        endpoint = node.input[output if node.op == "IdentityN" else 0]
        node = nodes[_name(endpoint)]
    return endpoint


def _pop_what_was_pushed(node: Any, nodes: dict[str, Any]) -> None:
    """A pop gives the element back; until shapes are inferred it stands as an identity of list and element."""
    from tensorflow.core.framework import types_pb2

    found = nodes[_name(_source(node.input[0], nodes, _PASSES_ON))]
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


def _places(node: Any, nodes: dict[str, Any], turns: dict[str, int]) -> int:
    """How many elements a list has in the end: one a turn, or as many as were reserved."""
    from tensorflow.python.framework import tensor_util

    passing = (*_PASSES_ON_INSIDE, *_ELEMENT)
    found = nodes[_name(_source(node.input[0], nodes, passing))]
    frame = found.attr["frame_name"].s.decode() if found.op == "Enter" else ""
    if found.op == "Enter":
        found = nodes[_name(_source(found.input[0], nodes, (*passing, "Enter")))]
    if found.op == "TensorListReserve":
        size = nodes[_name(found.input[1])]
        return int(tensor_util.MakeNdarray(size.attr["value"].tensor)) if size.op == "Const" else 1
    return turns.get(frame, 1)


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
    remaining = [node for node in nodes.values() if node.name in kept]
    copies = [type(node).FromString(node.SerializeToString()) for node in remaining]
    del graph_def.node[:]
    graph_def.node.extend(copies)
