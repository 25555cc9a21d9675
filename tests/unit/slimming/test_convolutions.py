"""The arithmetic of cheaper kernels; no TensorFlow."""

import numpy as np
import pytest

from memfit.slimming.convolutions import factorised

RANDOM = np.random.default_rng(0)


def whole(depthwise, pointwise):
    return depthwise * pointwise


def test_a_kernel_that_is_separable_comes_out_as_it_was():
    kernel = whole(RANDOM.normal(size=(3, 3, 4, 1)), RANDOM.normal(size=(1, 1, 4, 6))).astype("float32")
    np.testing.assert_allclose(whole(*factorised(kernel)), kernel, atol=1e-6)


@pytest.mark.parametrize("size", [(5,), (3, 3)])
def test_no_other_separable_kernel_is_nearer(size):
    kernel = RANDOM.normal(size=(*size, 4, 6))
    depthwise, pointwise = factorised(kernel)
    assert depthwise.shape == (*size, 4, 1)
    assert pointwise.shape == (*(1,) * len(size), 4, 6)
    nearest = np.linalg.norm(kernel - whole(depthwise, pointwise))
    for _ in range(20):
        moved = depthwise + RANDOM.normal(scale=0.05, size=depthwise.shape)
        other = pointwise + RANDOM.normal(scale=0.05, size=pointwise.shape)
        assert np.linalg.norm(kernel - whole(moved, other)) >= nearest
