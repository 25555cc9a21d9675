"""Stripping on stand-ins for protos; the real ones are in `tests/integration/test_xla_hlo.py`."""

import copy
from types import SimpleNamespace

from memfit.estimation.xla.hlo import LoweredStep, Parameter, strip_copies


class FakeInstruction:
    def __init__(self, identifier=0, opcode="", operands=(), after=()):
        self.id, self.opcode = identifier, opcode
        self.operand_ids, self.control_predecessor_ids = list(operands), list(after)

    def CopyFrom(self, other):  # noqa: N802 - protobuf's name
        self.__dict__.update(copy.deepcopy(other.__dict__))


def module(*instructions, root):
    return SimpleNamespace(computations=[SimpleNamespace(instructions=list(instructions), root_id=root)])


def test_readers_of_a_copy_read_its_source():
    hlo = module(
        FakeInstruction(1, "parameter"),
        FakeInstruction(2, "copy", [1]),
        FakeInstruction(3, "copy", [2]),
        FakeInstruction(4, "add", [3, 1], after=[2]),
        root=4,
    )
    assert strip_copies(hlo) == 2
    remaining = hlo.computations[0].instructions
    assert [each.id for each in remaining] == [1, 4]
    assert remaining[1].operand_ids == [1, 1]
    assert remaining[1].control_predecessor_ids == [1]


def test_a_result_that_is_a_copy_becomes_its_source():
    hlo = module(FakeInstruction(1, "parameter"), FakeInstruction(2, "copy", [1]), root=2)
    strip_copies(hlo)
    assert hlo.computations[0].root_id == 1


def test_a_module_without_copies_is_left_as_it_is():
    kept = FakeInstruction(1, "parameter")
    hlo = module(kept, root=1)
    assert strip_copies(hlo) == 0
    assert hlo.computations[0].instructions[0] is kept


def test_parameters_are_summed_by_kind_with_the_allocators_rounding():
    step = LoweredStep(
        hlo=b"",
        parameters=(
            Parameter("data", 1000, "f32", updated=False),
            Parameter("variable", 4, "f32", updated=True),
            Parameter("variable", 257, "f32", updated=True),
        ),
    )
    assert step.parameter_bytes("variable") == 261
    assert step.parameter_bytes("variable", alignment=256) == 256 + 512
    assert step.parameter_bytes("constant") == 0
