"""The buffer of image patches that TensorFlow's own CPU kernels take for a convolution's gradients.

They copy patches of as many images as fill a cache of 30 MiB into one matrix, whatever the batch is, also where the
batch has fewer (conv_grad_filter_ops.cc, conv_grad_input_ops.h). For volumes they fill the processor's own cache,
unless that is many times as large as the tensors (conv_grad_ops_3d.cc). oneDNN's kernels take none.
"""

import math
import os
import platform
from collections.abc import Sequence
from typing import Literal

from memfit.hardware.host import usable_cores
from memfit.units import MIB

_CACHE = 30 * MIB
_CACHE_OF_A_THREAD = MIB // 4
# How many times as large as input, filter and output the buffer of a volume may be.
_MOST_OF_A_VOLUME = 25
# `_SC_LEVEL3_CACHE_SIZE` of glibc's bits/confname.h, a name that Python does not have.
_LEVEL3_CACHE_SIZE = 194


def patch_buffer(
    gradient: Literal["input", "filter"],
    kernel: Sequence[int],
    channels: tuple[int, int],
    positions: int,
    batch: int | None,
    item_bytes: int,
) -> int:
    """Bytes of the buffer.

    Args:
        gradient: What the gradient is taken by.
        kernel: The filter's height and width.
        channels: Those of the input and of the output.
        positions: Height times width of the output.
        batch: The batch size; `None` is one that is not known.
        item_bytes: Bytes of a number.
    """
    patches, work = _patches_and_work(kernel, channels, positions)
    if not work:
        return 0
    images = -(-(_CACHE // item_bytes) // work)
    if gradient == "input" and (batch == 1 or work // usable_cores() >= _CACHE_OF_A_THREAD // item_bytes):
        images = 1
    return images * patches * item_bytes


def volume_patch_buffer(
    gradient: Literal["input", "filter"],
    kernel: Sequence[int],
    channels: tuple[int, int],
    positions: int,
    batch: int,
    item_bytes: int,
    tensor_bytes: int,
) -> int:
    """The same for volumes; `tensor_bytes` are those of input, filter and output."""
    patches, work = _patches_and_work(kernel, channels, positions)
    if not work or not tensor_bytes:
        return 0
    volumes = 1 if gradient == "input" and batch == 1 else -(-(_last_cache() // item_bytes) // work)
    size = volumes * patches * item_bytes
    return 0 if size // tensor_bytes > _MOST_OF_A_VOLUME else size


def _patches_and_work(kernel: Sequence[int], channels: tuple[int, int], positions: int) -> tuple[int, int]:
    """The numbers in the patches of an image, and in all three matrices of its product."""
    patch = math.prod(kernel) * channels[0]
    patches = positions * patch
    return patches, patches + positions * channels[1] + patch * channels[1]


def _last_cache() -> int:
    """Bytes of the processor's last cache, as it tells them itself; 0 where that is not known."""
    try:
        return max(0, os.sysconf(_LEVEL3_CACHE_SIZE)) if platform.libc_ver()[0] == "glibc" else 0
    except (AttributeError, ValueError, OSError):
        return 0
