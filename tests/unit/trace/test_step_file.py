import gzip
import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.errors import InputError
from memfit.trace.step import Op, Step, Tensor, Variable
from memfit.trace.step_file import load_step, save_step

numbers = st.integers(0, 2**40)
dimensions = st.tuples(numbers, numbers)
tensors = st.builds(
    Tensor,
    dtype=st.sampled_from(["float32", "resource"]),
    item_bytes=st.integers(0, 8),
    shape=st.none() | st.lists(dimensions, max_size=4).map(tuple),
    on_host=st.booleans(),
)
attributes = st.dictionaries(st.text(max_size=5), st.booleans() | numbers | st.text(max_size=5) | st.lists(numbers))
ops = st.builds(
    Op,
    name=st.text(max_size=8),
    type=st.sampled_from(["Conv2D", "Relu"]),
    inputs=st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple),
    control_inputs=st.lists(numbers, max_size=3).map(tuple),
    outputs=st.lists(tensors, max_size=3).map(tuple),
    variable=st.none() | numbers,
    attributes=attributes,
    layer=st.none() | st.text(max_size=8),
    source=st.none() | st.text(max_size=8),
    part=st.sampled_from(["forward", "backward", "update"]),
)
variables = st.builds(
    Variable,
    name=st.text(max_size=8),
    kind=st.sampled_from(["parameter", "optimizer"]),
    bytes=numbers,
    drawn=st.booleans(),
)


def steps(otherwise):
    return st.builds(
        Step,
        phase=st.sampled_from(["train", "predict"]),
        ops=st.lists(ops, max_size=4).map(tuple),
        variables=st.lists(variables, max_size=2).map(tuple),
        device=st.sampled_from(["GPU", "CPU"]),
        input_ops=st.lists(numbers, max_size=2).map(tuple),
        otherwise=otherwise,
    )


RELU = Op("relu", "Relu", ((0, 0),), (0,), (Tensor("float32", 4, ((1, 0), (0, 8))),))
STEP = Step("train", (RELU,), (), "GPU", (0,))


@given(steps(st.none() | steps(st.none())))
def test_a_saved_step_is_the_same_step(tmp_path_factory, step):
    path = tmp_path_factory.mktemp("step") / "a.step"
    save_step(step, path)
    loaded = load_step(path)
    assert loaded == step
    # Equality does not tell True from 1, which a kernel may.
    assert repr(loaded) == repr(step)


def test_every_field_is_in_the_file():
    # A field added to the step would be lost silently: write it, and raise the format.
    names = {each: [field.name for field in fields(each)] for each in (Step, Op, Tensor, Variable)}
    assert names == {
        Step: ["phase", "ops", "variables", "device", "input_ops", "otherwise", "only_batch"],
        Op: "name type inputs control_inputs outputs variable attributes layer source part".split(),
        Tensor: ["dtype", "item_bytes", "shape", "on_host"],
        Variable: ["name", "kind", "bytes", "drawn"],
    }


def test_equal_steps_are_equal_files(tmp_path):
    save_step(STEP, tmp_path / "one.step")
    save_step(STEP, tmp_path / "other.step")
    assert (tmp_path / "one.step").read_bytes() == (tmp_path / "other.step").read_bytes()


def test_repeated_tensors_are_written_once(tmp_path):
    save_step(Step("train", (RELU,) * 100, (), "GPU", (), otherwise=STEP), tmp_path / "a.step")
    values = json.loads(gzip.decompress((tmp_path / "a.step").read_bytes()))
    assert values["memfit_step"] == 1
    assert len(values["tensors"]) == 1


@pytest.mark.parametrize("value", [(1, 2), b"NHWC", object(), float("nan")])
def test_an_attribute_that_would_come_back_different_is_refused(tmp_path, value):
    op = Op("conv", "Conv2D", (), (), (), attributes={"strides": value})
    with pytest.raises(InputError, match="operation 'conv' has attributes that JSON does not give back"):
        save_step(Step("train", (op,), (), "GPU", ()), tmp_path / "a.step")
    assert not (tmp_path / "a.step").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "not a saved step"),
        ('{"step": {}}', "not a saved step"),
        ('{"memfit_step": 99}', "has format 99, this memfit reads 1"),
        ('{"memfit_step": 1}', "is damaged: KeyError"),
        ('{"memfit_step": 1, "tensors": [[]], "step": {}}', "is damaged: TypeError"),
    ],
)
def test_what_is_not_a_step_is_refused(tmp_path, text, message):
    path = tmp_path / "a.step"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match=message) as caught:
        load_step(path)
    assert "Write it again" in str(caught.value)


def test_an_operation_with_an_unknown_tensor_is_refused(tmp_path):
    path = tmp_path / "a.step"
    save_step(STEP, path)
    values = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps(values | {"tensors": []}).encode()))
    with pytest.raises(InputError, match="is damaged: IndexError"):
        load_step(path)


def test_half_a_file_and_plain_text_are_refused(tmp_path):
    path = tmp_path / "a.step"
    save_step(STEP, path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:20] + b"\xff" * 20, b'{"memfit_step": 1}', b""):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not"):
            load_step(path)


def test_a_step_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"'.*nothing.step' cannot be read: No such file"):
        load_step(tmp_path / "nothing.step")
