"""The workspace of cuDNN's kernels that transform images and filters: Fourier's, and Winograd's filter gradient.

cuDNN sizes them on a card only. The formulas gave 462 of 470 of them to the byte on an H200 (cuDNN 9.19, float32), with
samples, channels, image sizes and windows changed one at a time; six of the others were not offered there. Gradients of
strided convolutions and half precision come out within 1 %. Which of them cuDNN offers was read off 1,195 convolutions:
all that are here, but of channels-last 1 x 1 convolutions 57 of 81, and of Winograd's in bfloat16 55 of 63.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfit.hardware.cudnn import Problem

# The numbers of the kernels, by what they compute; one that adds a bias as well has another.
_FOURIER, _FOURIER_WITH_BIAS = {"forward": 3, "filter": 18, "input": 50}, 12
_WINOGRAD_FILTER = 17
_COMPLEX, _FLOAT = 8, 4
_ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
# Whole images are transformed up to this size; a gradient of images is transformed in tiles of the other, two at once.
_SMALLEST_SIDE, _LARGEST_SIDE, _TILE_SIDE, _TILES_AT_ONCE = 16, 256, 32, 2
_NARROW = 32
_SMALLEST_STRIDED = 3
"""The smallest window of a strided convolution that is transformed."""
# Winograd's filter gradients by window: outputs of a tile, the tile's side, and what samples are rounded up to.
_WINOGRAD = {(3, 3): (4, 6, 1), (5, 5): (9, 13, 16)}


def fourier_engine(problem: "Problem") -> int:
    """The number of the kernel with Fourier transforms for a convolution."""
    return _FOURIER_WITH_BIAS if problem.adds_bias else _FOURIER[problem.kind]


def is_fourier(problem: "Problem", engine: int) -> bool:
    """Whether a kernel is the one with Fourier transforms; it was never the fastest."""
    return engine == fourier_engine(problem)


def winograd_gradient(problem: "Problem") -> int:
    """The workspace of Winograd's filter gradient where it may be the fastest, else 0.

    On an H200 it was chosen for 3 of 512 channels in one of two runs (1876 MiB), and for 32 of 128.
    """
    if problem.kind != "filter" or min(problem.image[1], problem.filter[0]) > _NARROW:
        return 0
    return dict(kernels_left_out(problem)).get(_WINOGRAD_FILTER, 0)


def kernels_left_out(problem: "Problem") -> list[tuple[int, int]]:
    """The engines that cuDNN would offer for a convolution on the card besides, each with its workspace."""
    plain = max(problem.dilations) == 1 and problem.filter[1] == problem.image[1]
    window = problem.filter[2:]
    if len(window) != 2 or not plain or problem.dtype not in _ITEM_BYTES or math.prod(problem.image[2:]) == 1:
        return []
    sizes = []
    if problem.kind == "input":
        if problem.dtype in ("f32", "f16") and math.prod(window) > 1:
            sizes.append((fourier_engine(problem), _fourier_in_tiles(problem)))
    elif max(problem.strides) == 1:
        if problem.dtype == "f32" or (problem.kind == "forward" and problem.dtype == "f16"):
            sizes.append((fourier_engine(problem), _fourier_of_whole_images(problem)))
        if problem.kind == "filter" and window in _WINOGRAD:
            sizes.append((_WINOGRAD_FILTER, _winograd_filter(problem)))
    return [(engine, size + _converted(problem)) for engine, size in sizes if size]


def _fourier_of_whole_images(problem: "Problem") -> int:
    samples, channels, outputs = *problem.image[:2], problem.filter[0]
    padded = [size + 2 * padding for size, padding in zip(problem.image[2:], problem.padding, strict=True)]
    side = 1 << (max(_SMALLEST_SIDE, *padded) - 1).bit_length()
    if side > _LARGEST_SIDE:
        return 0
    if problem.kind == "forward":
        spectra = max(channels * outputs + samples * channels, samples * outputs)
        return 2 * _spectrum(side) * spectra + _FLOAT * math.prod(problem.filter)
    spectra = max(channels * outputs, samples * (channels + outputs))
    return 2 * _spectrum(side) * spectra + _FLOAT * math.prod(problem.output)


def _fourier_in_tiles(problem: "Problem") -> int:
    """A stride makes several problems of one, each with a part of the image and of the filter."""
    samples, channels, outputs = *problem.image[:2], problem.filter[0]
    if min(problem.image[2:]) == 1 or (max(problem.strides) > 1 and min(problem.filter[2:]) < _SMALLEST_STRIDED):
        return 0
    parts = math.prod(problem.strides)
    sides = [-(-size // stride) for size, stride in zip(problem.image[2:], problem.strides, strict=True)]
    tiles = min(_TILES_AT_ONCE, math.prod(-(-side // (_TILE_SIDE - 2)) for side in sides))
    return _spectrum(_TILE_SIDE) * (parts * channels * outputs + tiles * samples * (parts * channels + outputs))


def _winograd_filter(problem: "Problem") -> int:
    samples, channels, outputs = *problem.image[:2], problem.filter[0]
    computed, tile, multiple = _WINOGRAD[problem.filter[2], problem.filter[3]]
    tiles = math.prod(-(-size // computed) for size in problem.output[2:]) * (-(-samples // multiple) * multiple)
    return _FLOAT * tile**2 * (channels * outputs + tiles * (channels + outputs))


def _spectrum(side: int) -> int:
    """The bytes of one transformed image: complex numbers, half of the spectrum."""
    return side * (side // 2 + 1) * _COMPLEX


def _converted(problem: "Problem") -> int:
    """The copies in NCHW that they work on."""
    if not problem.channels_last and max(problem.strides) == 1:
        return 0
    return _ITEM_BYTES[problem.dtype] * sum(math.prod(each) for each in (problem.image, problem.filter, problem.output))
