"""The buffer of image patches that TensorFlow's own CPU kernels take for a convolution's gradients.

They copy patches of as many images as fill a cache of 30 MiB into one matrix, whatever the batch is, also where the
batch has fewer (conv_grad_filter_ops.cc, conv_grad_input_ops.h). oneDNN's kernels take none, nor do those of volumes.
"""

import math
import os
from collections.abc import Sequence
from typing import Literal

from memfit.units import MIB

_CACHE = 30 * MIB
_CACHE_OF_A_THREAD = MIB // 4


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
    patch = math.prod(kernel) * channels[0]
    patches = positions * patch
    work = patches + positions * channels[1] + patch * channels[1]
    if not work:
        return 0
    images = -(-(_CACHE // item_bytes) // work)
    if gradient == "input" and (batch == 1 or work // _threads() >= _CACHE_OF_A_THREAD // item_bytes):
        images = 1
    return images * patches * item_bytes


def _threads() -> int:
    """As many as TensorFlow computes with by default."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
