"""Steps made by hand, without TensorFlow."""

import pytest

from memfit.trace.step import Op, Step, Tensor, Variable

FLOAT = ("float32", 4)


class StepBuilder:
    """Adds operations one by one; shapes are `(per_sample, fixed)` pairs."""

    def __init__(self):
        self.ops = []
        self.variables = []

    def variable(self, size, kind="parameter", *, drawn=False):
        self.variables.append(Variable(f"v{len(self.variables)}", kind, size, drawn))
        return len(self.variables) - 1

    def op(self, type_, *inputs, shape=((1, 0),), part="forward", after=(), variable=None, layer=None, **attributes):
        outputs = () if shape is None else (Tensor(*FLOAT, shape),)
        sources = tuple((index, 0) for index in inputs)
        name = f"{type_}_{len(self.ops)}"
        self.ops.append(Op(name, type_, sources, tuple(after), outputs, variable, attributes, layer, None, part))
        return len(self.ops) - 1

    def build(self, device="GPU", otherwise=None):
        inputs = tuple(index for index, op in enumerate(self.ops) if op.type == "IteratorGetNext")
        return Step("train", tuple(self.ops), tuple(self.variables), device, inputs, otherwise)


@pytest.fixture
def builder():
    return StepBuilder()
