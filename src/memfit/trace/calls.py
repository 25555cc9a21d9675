"""Calls opened: the body of a function that is not inlined, between one node that starts it and one that ends it.

A call starts when all its inputs are there, holds them until the last operation of its body is done, and only then
hands out what it returns (partitioned_function_ops.cc).
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

# Attributes that tell the reader what a node is, where its operation and its name do not.
TYPE, BACKWARD = "_memfit_type", "_memfit_backward"

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_HANDLE = 20  # DT_RESOURCE of types.proto


def open_calls(graph_def: Any) -> None:
    """Put the bodies of called functions into the graph in place, those called in bodies too.

    The node that ends a call has its name, so that whoever used the call uses that; the operations of the body have
    their own names behind it.

    Args:
        graph_def: An optimised graph, whose library has the bodies, optimised as well; changed.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    while calls := [node for node in graph_def.node if _is_open_to_the_executor(node, functions)]:
        nodes = {node.name: node for node in graph_def.node}
        opened = {
            call.name: _opened(call, functions[call.attr["f"].func.name], backward=_gets_gradients(call, nodes))
            for call in calls
        }
        copies = [deepcopy(each) for node in graph_def.node for each in opened.get(node.name, [node])]
        del graph_def.node[:]
        graph_def.node.extend(copies)


def _is_open_to_the_executor(node: Any, functions: Mapping[str, Any]) -> bool:
    """Whether it is a call whose operations run one by one; what XLA compiles is one kernel."""
    if node.op not in _CALLS or node.attr["f"].func.name not in functions:
        return False
    return "_XlaMustCompile" not in node.attr or not node.attr["_XlaMustCompile"].b


def _gets_gradients(call: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether it belongs to the backward pass, and with it what it computes again of the forward pass."""
    stack, seen = [call.name], set()
    while stack:
        name = stack.pop()
        if "gradient_tape" in name.split("/") or BACKWARD in nodes[name].attr:
            return True
        if name not in seen and nodes[name].op != "NextIteration":  # what comes from the turn before is over
            seen.add(name)
            stack += [_name(each) for each in nodes[name].input if not each.startswith("^")]
    return False


def _opened(call: Any, function: Any, *, backward: bool) -> list[Any]:
    """The start, the body and the end of a call."""
    parameters = list(function.signature.input_arg)
    given = [each for each in call.input if not each.startswith("^")]
    # A handle is no memory, and whose it is can be seen only where it comes from.
    held = [number for number, each in enumerate(parameters) if each.type != _HANDLE]
    held_types = [parameters[number].type for number in held]
    start = _node("CallStart", f"{call.name}/start_of_call", call, [given[number] for number in held], held_types)
    start.input.extend(each for each in call.input if each.startswith("^"))
    arguments = {each.name: source for each, source in zip(parameters, given, strict=True)}
    arguments |= {parameters[number].name: f"{start.name}:{output}" for output, number in enumerate(held)}

    def inside(endpoint: str) -> str:
        name = _name(endpoint)
        if name not in arguments:
            return endpoint.replace(name, f"{call.name}/{name}", 1)
        return f"^{start.name}" if endpoint.startswith("^") else arguments[name]

    nodes, results = _body(function)
    nodes = [node for node in nodes if node.name not in arguments]
    for node in nodes:
        inputs = [inside(each) for each in node.input]
        if not any(_name(each).startswith(f"{call.name}/") for each in inputs):
            inputs.append(f"^{start.name}")
        node.ClearField("input")
        node.input.extend(inputs)
        node.name = f"{call.name}/{node.name}"
        if backward:
            node.attr[BACKWARD].b = True
        if node.op == "Enter":  # a function that is called twice has two loops
            node.attr["frame_name"].s = f"{call.name}/{node.attr['frame_name'].s.decode()}".encode()
    returned = [*map(inside, results), *(arguments[parameters[number].name] for number in held)]
    types = [*(each.type for each in function.signature.output_arg), *held_types]
    end = _node("CallEnd", call.name, call, returned, types)
    used = {_name(each) for node in [*nodes, end] for each in node.input}
    end.input.extend(f"^{node.name}" for node in nodes if node.name not in used)
    return [start, *nodes, end]


def _body(function: Any) -> tuple[list[Any], list[str]]:
    """The nodes of a function, its parameters among them, and what it returns."""
    from tensorflow.python.framework import function_def_to_graph

    body, flat_names = function_def_to_graph.function_def_to_graph_def(function)
    return list(body.node), [flat_names[function.ret[each.name]] for each in function.signature.output_arg]


def _node(kind: str, name: str, call: Any, inputs: Sequence[str], types: Sequence[int]) -> Any:
    """A node that passes everything on: until shapes are inferred it stands as an identity."""
    node = type(call)(name=name, op="IdentityN" if inputs else "NoOp", device=call.device, input=inputs)
    node.attr[TYPE].s = kind.encode()
    if inputs:
        node.attr["T"].list.type.extend(types)
    return node


def _name(endpoint: str) -> str:
    return endpoint.lstrip("^").partition(":")[0]
