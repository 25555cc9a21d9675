import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.networks import network, search

MIB = 2**18  # numbers of four bytes

networks = st.builds(
    network,
    st.lists(st.integers(1, 64).map(lambda size: size * MIB // 64), min_size=3, max_size=14),
    st.lists(st.tuples(st.integers(0, 12), st.integers(2, 13)), max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(networks, st.sampled_from([None, "exact", "close"]), st.sampled_from(["exact", "close"]), st.data())
def test_a_smaller_budget_is_never_faster_nor_larger(step, slices, grade, data):
    ways = search(step, slices=slices)
    plain = ways.peak(ways.plain)
    budgets = sorted(data.draw(st.lists(st.integers(plain // 10, plain), min_size=2, max_size=6)), reverse=True)
    chosen = [ways.fastest(budget, grade) for budget in budgets]
    for budget, candidate in zip(budgets, chosen, strict=True):
        assert candidate is None or ways.peak(candidate) <= budget
    for wide, tight in itertools.pairwise(chosen):
        if tight is None:
            continue
        assert wide is not None
        assert wide.seconds <= tight.seconds
        assert ways.peak(wide) >= ways.peak(tight)


@settings(max_examples=30, deadline=None)
@given(networks)
def test_the_front_goes_from_the_fastest_to_the_smallest(step):
    ways = search(step, slices="exact")
    front = ways.front("exact")
    assert front[0] == ways.candidates("exact")[0]
    for faster, slower in itertools.pairwise(front):
        assert faster.seconds <= slower.seconds
        assert ways.peak(faster) > ways.peak(slower)


def test_nothing_is_changed_where_everything_fits():
    ways = search(network([MIB] * 8), slices="exact")
    assert ways.fastest(2**40, "exact") == ways.plain


def test_equal_layers_are_recomputed_in_segments():
    ways = search(network([MIB] * 24))
    chosen = ways.fastest(int(ways.peak(ways.plain) * 0.5), "exact")
    assert chosen is not None
    assert len(chosen.segments) > 1
    assert ways.plain.seconds < chosen.seconds < 1.34 * ways.plain.seconds  # at most the forward pass once more


def test_only_what_has_to_be_is_recomputed():
    ways = search(network([MIB] * 24))
    plain = ways.peak(ways.plain)
    costs = [ways.fastest(int(plain * share), "exact").seconds for share in (0.9, 0.7, 0.5)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_slices_are_taken_only_at_their_grade():
    ways = search(network([MIB] * 3), slices="close")
    budget = int(ways.peak(ways.plain) * 0.4)
    assert ways.fastest(budget, "exact") is None
    assert ways.fastest(budget, "close").micro_batch is not None


def test_what_does_not_fit_is_no_answer():
    ways = search(network([MIB] * 8), slices="exact")
    assert ways.fastest(4096, "any") is None
    assert ways.peak(ways.smallest("any")) > 4096


def test_a_candidate_that_failed_is_passed_over():
    ways = search(network([MIB] * 24))
    budget = int(ways.peak(ways.plain) * 0.6)
    first = ways.fastest(budget, "exact")
    second = ways.fastest(budget, "exact", besides=[first])
    assert second != first
    assert second.seconds >= first.seconds


@pytest.mark.parametrize("regime", ["graph", "xla"])
def test_peaks_are_scaled_to_the_regime(regime):
    ways = search(network([MIB] * 8))
    ways.regime = regime
    before = ways.peak(ways.plain)
    ways.bases[0] = type(ways.bases[0])({}, "exact", ways.bases[0].called, before // 2)
    assert ways.peak(ways.plain) == pytest.approx(before // 2, abs=2)
