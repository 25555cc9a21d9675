"""The buffers that TensorFlow named when it could not allocate them, on a CPU with two cores."""

import math

import pytest

from memfit.hardware import patches
from memfit.hardware.patches import patch_buffer, volume_patch_buffer


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(patches, "usable_cores", lambda: 2)


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


@pytest.fixture
def large_cache(monkeypatch):
    monkeypatch.setattr(patches, "_last_cache", lambda: 402653184)


def test_volumes_fill_the_cache_of_the_processor(large_cache):
    # The first layer of a 3-D network at batch 4, with a cache of 384 MiB: TensorFlow took [68, 16384, 27].
    tensors = 4 * (4 * 16384 * (1 + 64) + 27 * 64)
    shapes = (3, 3, 3), (1, 64), 32 * 32 * 16, 4, 4
    assert volume_patch_buffer("filter", *shapes, tensors) == 4 * 68 * 16384 * 27
    assert volume_patch_buffer("input", *shapes, tensors) == 4 * 68 * 16384 * 27


def test_volumes_take_no_buffer_that_is_many_times_as_large_as_they_are(large_cache):
    assert volume_patch_buffer("filter", (3, 3, 3), (8, 8), 4 * 4 * 4, 4, 4, 4 * 4 * 64 * 16) == 0


def test_a_single_volume_is_worked_on_alone(large_cache):
    tensors = 4 * (16384 * (1 + 64) + 27 * 64)
    assert volume_patch_buffer("input", (3, 3, 3), (1, 64), 32 * 32 * 16, 1, 4, tensors) == 4 * 16384 * 27
