"""The buffers that TensorFlow named when it could not allocate them, on a CPU with two cores."""

import math

import pytest

from memfit.hardware import patches
from memfit.hardware.patches import patch_buffer


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(patches, "_threads", lambda: 2)


@pytest.mark.parametrize(
    ("kernel", "channels", "positions", "named"),
    [
        ((3, 3), (16, 16), 96 * 96, (6, 9216, 144)),
        ((3, 3), (32, 64), 14 * 14, (90, 196, 288)),
        ((3, 3), (256, 512), 7 * 7, (6, 49, 2304)),
    ],
)
def test_gradient_by_the_filter(kernel, channels, positions, named):
    assert patch_buffer("filter", kernel, channels, positions, None, 4) == 4 * math.prod(named)


def test_gradient_by_the_input_takes_one_image_where_an_image_is_enough_work():
    large = patch_buffer("input", (3, 3), (16, 16), 96 * 96, 32, 4)
    assert large == 4 * 96 * 96 * 144
    small = patch_buffer("input", (3, 3), (1, 32), 28 * 28, 32, 4)
    assert small > 100 * patch_buffer("input", (3, 3), (1, 32), 28 * 28, 1, 4)
