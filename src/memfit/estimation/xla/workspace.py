"""What cuDNN's convolutions need beside their operands.

On the GPU XLA times cuDNN's algorithms and keeps the fastest; its workspace then lives in the step's temporary block.
Which one wins cannot be known without the card, but what each kind needs memory *for* can. Seen in 1,200 convolutions
of seven networks on an H200 with cuDNN 9:

- Forward and input gradients of channels-last tensors run without (808 of 837), except where the image has fewer
  channels than the kernels load at once (RGB in float32): then it is first copied to another layout.
- Filter gradients sum over all pixels of the batch. The sum is split among the multiprocessors, each with a tile of
  partial sums of its own: at most 128 KiB for each (16.5 MiB on 132), half of that in the middle.
- Filter gradients of a large window over few channels copy image and output gradient to another layout as well.
- Convolutions to fewer channels than that (a generator's image in float32) may copy what they read and write: of two
  runs of a super-resolution network one did, by 256 MiB.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memfit.estimation.xla.convolution import Convolution
from memfit.hardware.catalog import GPU
from memfit.hardware.cudnn import Kernel, Problem, kernels
from memfit.hardware.transforms import is_fourier, winograd_gradient
from memfit.units import KIB

# One tile of float32 partial sums, 128 x 128 or 128 x 256.
_TILE, _LARGEST_TILE = 64 * KIB, 128 * KIB
# Pixels that one split sums at least: 90 to 140 where they are few.
_PIXELS_PER_SPLIT = 128
# With fewer channels there is no channels-last kernel for float32; XLA pads half precision to as many itself.
_FEWEST_CHANNELS = 4
_ELEMENT_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
# Windows over few channels that kernels exist for without another layout.
_SMALL_WINDOW = 9
# The kernels at the head of cuDNN's list that timing chose from, and the channels up to which a filter gradient was
# faster on copies in another layout (three networks with 24 and 32 channels on an H200).
_NEAR, _NARROW = 6, 32


Offered = Mapping[Problem, tuple[Kernel, ...]]
"""The kernels cuDNN offers, by convolution; without those it could not be asked for."""


@dataclass(frozen=True)
class Workspace:
    """Bytes of workspace: what is likely, and the range autotuning may choose from."""

    low: int
    likely: int
    high: int


def offered_kernels(convolutions: Sequence[Convolution], gpu: GPU, *, on_card: bool = False) -> Offered:
    """The kernels cuDNN offers for the convolutions of a step on a card; see `memfit.hardware.cudnn.kernels`."""
    return kernels([each.problem for each in convolutions], gpu, on_card=on_card)


def workspace(convolution: Convolution, multiprocessors: int, offered: Sequence[Kernel] = ()) -> Workspace:
    """The workspace cuDNN takes for a convolution.

    Args:
        convolution: The call.
        multiprocessors: Of the GPU; partial sums are kept for each.
        offered: The kernels cuDNN offers for it, where it could be asked.
    """
    sizes = [kernel.workspace for kernel in offered if not is_fourier(convolution.problem, kernel.engine)]
    return _of_kernels(convolution, multiprocessors, sizes) if sizes else _of_shapes(convolution, multiprocessors)


def _of_kernels(convolution: Convolution, multiprocessors: int, sizes: Sequence[int]) -> Workspace:
    """What is chosen of the kernels offered; the first one, with the exceptions that were seen on an H200."""
    first, near = sizes[0], sizes[:_NEAR]
    if convolution.feature_groups > 1:
        # Kernels that copy are offered first and were never chosen.
        return Workspace(min(near), min(near), max(min(near), _partial_sums(convolution, multiprocessors).high))
    copied = convolution.image.size + convolution.output.size
    if convolution.kind == "backward_filter":
        gradient = _of_filter_kernels(convolution, multiprocessors, near)
        return replace(gradient, high=max(gradient.high, winograd_gradient(convolution.problem)))
    if _taps(convolution) == 1:
        first = min(sizes[:3])
    few = min(convolution.channels) < _FEWEST_CHANNELS
    return Workspace(min(near), first, max(near) if few else max(first, min(copied, first + multiprocessors * _TILE)))


def _of_filter_kernels(convolution: Convolution, multiprocessors: int, near: Sequence[int]) -> Workspace:
    copying = [size for size in near if size >= convolution.image.size]
    sums = _partial_sums(convolution, multiprocessors)
    narrow = convolution.dtype == "f32" and max(convolution.channels) <= _NARROW <= 2 * min(convolution.channels)
    wide_window = min(convolution.channels) < _FEWEST_CHANNELS and _taps(convolution) > _SMALL_WINDOW
    if copying and (near[0] in copying or narrow or wide_window):
        return Workspace(min(near), copying[0] + (0 if near[0] in copying else sums.likely), max(near) + sums.high)
    # Where no card is there cuDNN sizes partial sums for one multiprocessor.
    likely = max(near[0], sums.likely)
    high = max(near) if min(convolution.channels) <= _NARROW else likely
    return Workspace(min(near), likely, max(likely, high, sums.high))


def _of_shapes(convolution: Convolution, multiprocessors: int) -> Workspace:
    narrow = _is_narrow(convolution)
    image, weights, output = convolution.image.size, convolution.filter.size, convolution.output.size
    copied = image + output + weights if _writes_few_channels(convolution) else 0
    if convolution.kind == "backward_input":
        return Workspace(0, 0, max(copied, multiprocessors * _LARGEST_TILE))
    if convolution.kind == "forward":
        return Workspace(0, image + weights, image + weights) if narrow else Workspace(0, 0, copied)
    partial = _partial_sums(convolution, multiprocessors)
    partial = replace(partial, high=max(copied, partial.high))
    if narrow:
        copies = image + output + partial.likely
        if _taps(convolution) > _SMALL_WINDOW:
            return Workspace(0, copies, copies)
        return Workspace(0, 0, partial.high)
    return partial


def _partial_sums(convolution: Convolution, multiprocessors: int) -> Workspace:
    weights = convolution.filter.size * (4 // min(4, _ELEMENT_BYTES.get(convolution.dtype, 4)))
    by_pixels = weights * max(1, convolution.positions // _PIXELS_PER_SPLIT)
    if convolution.feature_groups > 1:
        return Workspace(0, min(by_pixels, multiprocessors * _TILE // 8), min(by_pixels, multiprocessors * _TILE))
    likely = min(by_pixels, multiprocessors * _TILE)
    return Workspace(0, likely, min(by_pixels * 2, multiprocessors * _LARGEST_TILE))


def _is_narrow(convolution: Convolution) -> bool:
    """Whether a pixel has too few channels for the usual kernels (an RGB image in float32)."""
    return convolution.feature_groups == 1 and convolution.channels[0] < _FEWEST_CHANNELS


def _writes_few_channels(convolution: Convolution) -> bool:
    """Whether the layer's result is an image in float32; XLA pads half precision itself."""
    few = convolution.feature_groups == 1 and convolution.channels[1] < _FEWEST_CHANNELS
    return few and convolution.dtype == "f32" and _taps(convolution) > 1


def _taps(convolution: Convolution) -> int:
    taps = 1
    for size in convolution.window:
        taps *= size
    return taps
