"""Which weights stay; no TensorFlow."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.compress.masks import fits_two_of_four, largest, scheduled_sparsity, two_of_four

RANDOM = np.random.default_rng(0)


@given(st.integers(1, 200), st.floats(0, 0.999))
def test_the_share_is_met_and_the_largest_stay(size, sparsity):
    weights = np.random.default_rng(size).normal(size=size)
    keep = largest(weights, sparsity)
    assert (~keep).sum() == round(size * sparsity)
    if keep.any() and not keep.all():
        assert np.abs(weights[keep]).min() >= np.abs(weights[~keep]).max()


def test_equal_weights_lose_no_more_than_their_share():
    assert largest(np.zeros(10), 0.5).sum() == 5


@pytest.mark.parametrize("shape", [(8, 3), (3, 3, 4, 5)])
def test_two_of_every_four_stay(shape):
    weights = RANDOM.normal(size=shape)
    keep = two_of_four(weights)
    fours = np.moveaxis(keep, -2, -1).reshape(-1, 4)
    assert (fours.sum(axis=1) == 2).all()
    values = np.abs(np.moveaxis(weights, -2, -1).reshape(-1, 4))
    assert all(row[kept].min() >= row[~kept].max() for row, kept in zip(values, fours, strict=True))


def test_what_comes_in_fours():
    assert fits_two_of_four((3, 3, 8, 5))
    assert not fits_two_of_four((3, 3, 3, 8))
    assert not fits_two_of_four((8,))


def test_schedules_start_at_nothing_and_reach_the_end():
    steps = [scheduled_sparsity(0.8, "polynomial", step, 10, 110) for step in range(130)]
    assert steps[:11] == [0.0] * 11
    assert all(earlier <= later for earlier, later in pairwise(steps))
    assert steps[110:] == [0.8] * 20
    assert steps[60] > 0.4  # most of it goes early
    assert [scheduled_sparsity(0.8, "constant", step, 10, 110) for step in (9, 10)] == [0.0, 0.8]
