import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.networks import called, network

from memfit.estimation.lifetimes import lifetimes
from memfit.estimation.workspace import cpu_workspace
from memfit.techniques.remat_step import recomputed


def again(step):
    return [op.name for op in step.ops if op.name.startswith("again/")]


def test_the_insides_of_a_segment_run_again():
    step = recomputed(called(network([1] * 6)), [(1, 4)])
    assert again(step) == [f"again/net/layer{at}/Work" for at in (1, 2, 3)]


def test_nothing_recomputed_is_the_same_step():
    plain = network([1] * 6)
    assert recomputed(called(plain), []) is plain


def test_gradients_read_what_was_computed_again():
    plain = network([1] * 6)
    step = recomputed(called(plain), [(1, 4)])
    names = {op.name: op for op in step.ops}
    gradient = names["gradient_tape/net/layer2/Work_2"]
    assert {step.ops[source].name for source, _ in gradient.inputs} == {
        "gradient_tape/net/layer3/Work_3",
        "again/net/layer1/Work",
        "again/net/layer2/Work",
    }


def test_it_waits_for_the_gradient_from_behind():
    step = recomputed(called(network([1] * 6)), [(1, 4)])
    first = next(op for op in step.ops if op.name == "again/net/layer1/Work")
    assert [step.ops[at].name for at in first.control_inputs] == ["gradient_tape/net/layer4/Work_4"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=4, max_size=12),
    st.lists(st.tuples(st.integers(0, 9), st.integers(2, 11)), max_size=4),
    st.data(),
)
def test_every_operation_still_runs(sizes, skips, data):
    plain = called(network(sizes, skips))
    edges = sorted(data.draw(st.sets(st.integers(0, len(sizes)), min_size=2)))
    step = recomputed(plain, list(itertools.pairwise(edges)))
    assert len(lifetimes(step, 4, workspace=cpu_workspace).order) == len(step.ops)
