"""Calls opened, on nodes made by hand: no TensorFlow."""

from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from memfit.trace import calls
from memfit.trace.calls import BACKWARD, TYPE, open_calls

FLOAT, HANDLE = 1, 20


def _value():
    return SimpleNamespace(s=b"", b=False, func=SimpleNamespace(name=""), list=SimpleNamespace(type=[]))


@dataclass
class Node:
    """As much of a NodeDef as is used."""

    name: str
    op: str = "Mul"
    input: list = field(default_factory=list)
    device: str = ""
    attr: dict = field(default_factory=lambda: defaultdict(_value))

    def ClearField(self, name):  # noqa: N802 (protobuf's name)
        setattr(self, name, [])


@dataclass
class Function:
    """A function, its body and what it returns."""

    name: str
    parameters: dict
    nodes: list
    results: list

    @property
    def signature(self):
        arguments = [SimpleNamespace(name=name, type=type_) for name, type_ in self.parameters.items()]
        returned = [SimpleNamespace(name=f"r{number}", type=FLOAT) for number, _ in enumerate(self.results)]
        return SimpleNamespace(name=self.name, input_arg=arguments, output_arg=returned)


@pytest.fixture(autouse=True)
def _bodies(monkeypatch):
    monkeypatch.setattr(calls, "_body", lambda function: (deepcopy(function.nodes), function.results))


def call(name, function, *inputs):
    node = Node(name, "PartitionedCall", list(inputs))
    node.attr["f"].func.name = function
    return node


def opened(nodes, *functions):
    graph_def = SimpleNamespace(node=nodes, library=SimpleNamespace(function=functions))
    open_calls(graph_def)
    return {node.name: node for node in graph_def.node}


@pytest.fixture
def squared_sum():
    body = [Node("square", "Square", ["x"]), Node("one", "Const"), Node("sum", "Sum", ["square:0", "one:0"])]
    return Function("squared_sum", {"x": FLOAT}, body, ["sum:0"])


def test_everything_in_a_body_waits_for_the_start(squared_sum):
    nodes = opened([Node("a"), call("call", "squared_sum", "a", "^before"), Node("before")], squared_sum)
    assert nodes["call/start_of_call"].input == ["a", "^before"]
    assert nodes["call/square"].input == ["call/start_of_call:0"]
    assert nodes["call/one"].input == ["^call/start_of_call"]


def test_results_come_out_at_the_end_which_holds_the_inputs_until_then(squared_sum):
    nodes = opened([Node("a"), call("call", "squared_sum", "a"), Node("user", "Neg", ["call"])], squared_sum)
    assert nodes["call"].input == ["call/sum:0", "call/start_of_call:0"]
    assert nodes["user"].input == ["call"]
    assert [nodes[name].attr[TYPE].s for name in ("call/start_of_call", "call")] == [b"CallStart", b"CallEnd"]


def test_the_end_waits_for_what_returns_nothing():
    function = Function("f", {"x": FLOAT}, [Node("write", "AssignVariableOp", ["x"])], ["x"])
    assert opened([Node("a"), call("call", "f", "a")], function)["call"].input[-1] == "^call/write"


def test_a_handle_goes_straight_to_its_variable_but_not_before_the_start():
    function = Function("f", {"v": HANDLE}, [Node("read", "ReadVariableOp", ["v"])], ["read:0"])
    nodes = opened([Node("variable", "VarHandleOp"), call("call", "f", "variable")], function)
    assert nodes["call/read"].input == ["variable", "^call/start_of_call"]
    assert nodes["call"].input == ["call/read:0"]


def test_calls_in_calls_are_opened_too(squared_sum):
    outer = Function("outer", {"x": FLOAT}, [call("inner", "squared_sum", "x")], ["inner:0"])
    nodes = opened([Node("a"), call("call", "outer", "a")], outer, squared_sum)
    assert nodes["call/inner/square"].input == ["call/inner/start_of_call:0"]
    assert nodes["call/inner/start_of_call"].input == ["call/start_of_call:0"]


def test_two_calls_of_one_function_have_two_loops():
    loop = Node("enter", "Enter", ["x"])
    loop.attr["frame_name"].s = b"while"
    function = Function("f", {"x": FLOAT}, [loop], ["enter:0"])
    nodes = opened([Node("a"), call("first", "f", "a"), call("second", "f", "a")], function)
    assert nodes["first/enter"].attr["frame_name"].s == b"first/while"
    assert nodes["second/enter"].attr["frame_name"].s == b"second/while"


@pytest.mark.parametrize(("given", "backward"), [("gradient_tape/net/Mul", True), ("net/Mul", False)])
def test_what_is_computed_again_for_gradients_belongs_to_the_backward_pass(squared_sum, given, backward):
    nodes = opened([Node(given), Node("cast", "Cast", [given]), call("call", "squared_sum", "cast")], squared_sum)
    assert (BACKWARD in nodes["call/square"].attr) is backward


def test_what_xla_compiles_stays_one_operation(squared_sum):
    compiled = call("call", "squared_sum", "a")
    compiled.attr["_XlaMustCompile"].b = True
    assert set(opened([Node("a"), compiled], squared_sum)) == {"a", "call"}
