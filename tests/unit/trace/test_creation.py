from types import SimpleNamespace

import pytest

from memfit.trace.creation import created_at


class Attribute:
    """A function's name, or several."""

    def __init__(self, *names):
        functions = [SimpleNamespace(name=name) for name in names]
        self.func = functions[0]
        self.list = SimpleNamespace(func=functions[1:])

    def HasField(self, _name):  # noqa: N802 (protobuf's name)
        return True


def node(name, **attributes):
    return SimpleNamespace(name=name, attr=attributes)


@pytest.fixture
def traced():
    """A loop whose body calls a function, between two operations."""
    body = SimpleNamespace(
        signature=SimpleNamespace(name="body"),
        node_def=[node("while/first"), node("while/call", f=Attribute("inner")), node("while/last")],
    )
    inner = SimpleNamespace(signature=SimpleNamespace(name="inner"), node_def=[node("mul"), node("add")])
    return SimpleNamespace(
        node=[node("before"), node("while", cond=Attribute("cond"), body=Attribute("body")), node("after")],
        library=SimpleNamespace(function=[body, inner]),
    )


IN_THE_LOOP = ["while/body/_1/while/first", "while/body/_1/while/call/mul", "while/body/_1/while/call/add"]


def test_what_was_in_functions_is_as_old_as_in_them_and_as_what_called_them(traced):
    names = ["before", *IN_THE_LOOP, "while/body/_1/while/last", "after"]
    created = created_at(traced, reversed(names), in_functions=True)
    assert sorted(created, key=created.__getitem__) == names


def test_what_the_optimiser_made_is_not_there(traced):
    assert created_at(traced, ["before", "while/enter/_7", "ConstantFolding/x"], in_functions=True) == {"before": 0}


def test_functions_can_be_left_out(traced):
    assert created_at(traced, ["after", *IN_THE_LOOP, "before"], in_functions=False) == {"before": 0, "after": 1}
