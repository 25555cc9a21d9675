"""Scratch memory of cuDNN: what convolutions and recurrent layers take while they run.

The rules are causes, seen in every convolution of 22 models on an H200 (cuDNN 9.19):

- float32 in NCHW runs on TF32 tensor-core kernels that want NHWC: workspace = input + output + filter, converted;
- a filter gradient adds partial results, as many as fit 9 MiB, at most 15;
- its tensor cores take channels in fours, so the three channels of a picture that is put out become four;
- a `same` convolution that pads one side more than the other runs on a padded copy of its input;
- half precision is NHWC already and takes next to nothing; 1x1 convolutions are plain matrix products there;
- autotuning also tries kernels that transform images and filters (`memfit.hardware.transforms`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from memfit.hardware import onednn, scratch
from memfit.hardware.cudnn import Problem
from memfit.hardware.patches import patch_buffer, volume_patch_buffer
from memfit.hardware.transforms import fourier_engine, kernels_left_out
from memfit.trace.step import Op, Step, Tensor
from memfit.units import MIB

Workspace = Callable[[Step, int, int], int]
"""Scratch bytes of operation `index` of a step at a batch size."""

_PARTIAL_RESULTS, _MOST_PARTIAL_RESULTS = 9 * MIB, 15
# Smaller images than this use the converting kernels for 1x1 convolutions too (all 7 to 19 pixels did, none from 28).
_SMALL_IMAGE = 20
# Each autotuning trial writes to a copy of the output between two red zones (redzone_allocator.h: 8 MiB a side).
_RED_ZONES = 16 * MIB
_TENSOR_CORE_FP32 = (8, 0)
# TF32 kernels read four channels at once.
_VECTOR = 4

_CONVOLUTIONS = ("Conv2D", "Conv3D", "_FusedConv2D")
DEPTHWISE = "DepthwiseConv2dNative"
_CUDNN_TYPES = {"float32": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16", "float64": "f64"}


@dataclass(frozen=True)
class Convolution:
    """The shapes of a convolution or of one of its gradients, at a batch size."""

    kind: Literal["forward", "fused", "input", "filter"]
    """`forward`, `fused` (forward with bias and activation), `input` or `filter`: what is computed."""
    image_bytes: int
    padded_bytes: int
    """The image with what TensorFlow pads itself: a row and a column where both sides would not get the same."""
    result_bytes: int
    filter_bytes: int
    item_bytes: int
    kernel: tuple[int, ...]
    spatial: tuple[int, ...]
    channels: tuple[int, int]
    batch: int
    strided: bool
    channels_last: bool
    problem: Problem | None = None
    """As cuDNN is asked for it; `None` where a padding is not known."""

    @property
    def is_pointwise(self) -> bool:
        """A 1x1 convolution without strides: a matrix product."""
        return not self.strided and all(size == 1 for size in self.kernel)

    @property
    def is_matrix_product(self) -> bool:
        """Whether TensorFlow hands it to cuBLAS instead of cuDNN (conv_ops_impl.h)."""
        return self.channels_last and self.is_pointwise


def convolution(step: Step, index: int, batch: int, *, types: tuple[str, ...] = _CONVOLUTIONS) -> Convolution | None:
    """Read an operation as a convolution; `None` if it is none of these types or its shapes are not known."""
    op = step.ops[index]
    if not op.type.startswith(types):
        return None
    operands = [step.ops[source].outputs[output] for source, output in op.inputs]
    kind: Literal["forward", "fused", "input", "filter"]
    if "BackpropInput" in op.type:
        kind, image, filters, result = "input", op.outputs[0], operands[1], operands[2]
    elif "BackpropFilter" in op.type:
        kind, image, filters, result = "filter", operands[0], op.outputs[0], operands[2]
    else:
        kind = "fused" if op.type.startswith("_Fused") else "forward"
        image, filters, result = operands[0], operands[1], op.outputs[0]
    image_shape, filter_shape = image.dimensions(batch), filters.dimensions(batch)
    sizes = [each.bytes(batch) for each in (image, result, filters)]
    if image_shape is None or filter_shape is None or None in sizes:
        return None
    if op.type.startswith(DEPTHWISE):
        # Filters of each channel: for cuDNN a convolution in as many groups.
        filter_shape = (*filter_shape[:-2], 1, filter_shape[-2] * filter_shape[-1])
    last = str(op.attributes.get("data_format", "NHWC")).endswith("C")
    strides = _spatial(op, "strides", last=last)
    spatial, kernel = image_shape[1:-1] if last else image_shape[2:], filter_shape[:-2]
    image_bytes = padded_bytes = sizes[0] or 0
    if op.attributes.get("padding") == "SAME" and (dilations := _spatial(op, "dilations", last=last)):
        for size, width, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
            padded_bytes = padded_bytes * (size + _uneven_padding(size, width, stride, dilation)) // size
    return Convolution(
        kind=kind,
        image_bytes=image_bytes,
        padded_bytes=padded_bytes,
        result_bytes=sizes[1] or 0,
        filter_bytes=sizes[2] or 0,
        item_bytes=image.item_bytes,
        kernel=kernel,
        spatial=spatial,
        channels=(filter_shape[-2], filter_shape[-1]),
        batch=image_shape[0],
        strided=any(stride > 1 for stride in strides),
        channels_last=last,
        problem=_problem(op, kind, image, filter_shape, (image_shape, result.dimensions(batch)), last=last),
    )


def _problem(
    op: Op,
    kind: Literal["forward", "fused", "input", "filter"],
    image: Tensor,
    filter_shape: tuple[int, ...],
    shapes: tuple[tuple[int, ...], tuple[int, ...] | None],
    *,
    last: bool,
) -> Problem | None:
    strides, dilations = _spatial(op, "strides", last=last), _spatial(op, "dilations", last=last)
    dtype = _CUDNN_TYPES.get(image.dtype)
    if shapes[1] is None or dtype is None or not strides or op.attributes.get("padding") not in ("SAME", "VALID"):
        return None
    dilations = dilations or [1] * len(strides)
    image_shape, output_shape = (_channels_first(shape, last=last) for shape in (shapes[0], shapes[1]))
    spatial, padding = list(image_shape[2:]), [0] * len(strides)
    if op.attributes["padding"] == "SAME":
        for place, size in enumerate(spatial):
            width = (filter_shape[place] - 1) * dilations[place] + 1
            total = max(0, (-(-size // strides[place]) - 1) * strides[place] + width - size)
            # TensorFlow pads what is more on one side than on the other itself (conv_ops_impl.h).
            padding[place] = total // 2
            spatial[place] += total % 2
    return Problem(
        kind="forward" if kind == "fused" else kind,
        dtype=dtype,
        image=(*image_shape[:2], *spatial),
        filter=(filter_shape[-1], filter_shape[-2], *filter_shape[:-2]),
        output=output_shape,
        strides=tuple(strides),
        padding=tuple(padding),
        dilations=tuple(dilations),
        channels_last=last,
        adds_bias=kind == "fused",
    )


def _channels_first(shape: tuple[int, ...], *, last: bool) -> tuple[int, ...]:
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape


def _spatial(op: Op, name: str, *, last: bool) -> list[int]:
    """An attribute with a number for every dimension, of the spatial ones alone."""
    values = op.attributes.get(name)
    if not isinstance(values, list):
        return []
    return values[1:-1] if last else values[2:]


def _uneven_padding(size: int, width: int, stride: int, dilation: int) -> int:
    """1 where "same" pads one side more than the other, which cuDNN cannot (conv_ops_gpu.cc), else 0."""
    outputs = -(-size // stride)
    return max(0, (outputs - 1) * stride + (width - 1) * dilation + 1 - size) % 2


def cpu_workspace(step: Step, index: int, batch: int) -> int:
    """What gradients of convolutions and of pooling take on this machine's CPU without oneDNN."""
    op = step.ops[index]
    if not onednn.is_off():
        return 0
    if op.type == "MaxPoolGrad":
        # The forward pass again, and 64-bit positions of the largest values (maxpooling_op.cc).
        return 3 * (step.ops[op.inputs[1][0]].outputs[op.inputs[1][1]].bytes(batch) or 0)
    conv = convolution(step, index, batch) if op.type.startswith(("Conv2D", "Conv3D")) else None
    if conv is None or conv.kind not in ("input", "filter") or op.attributes.get("_kernel"):
        return 0
    positions = conv.result_bytes // max(1, conv.item_bytes * conv.batch * conv.channels[1])
    shapes = conv.kind, conv.kernel, conv.channels, positions, conv.batch, conv.item_bytes
    if op.type.startswith("Conv2D"):
        return patch_buffer(*shapes)
    return volume_patch_buffer(*shapes, tensor_bytes=conv.image_bytes + conv.filter_bytes + conv.result_bytes)


def steady_workspace(capability: tuple[int, int] | None, limit: int | None = None) -> Workspace:
    """What each operation takes once autotuning has chosen, under a cap or that of this process."""
    return partial(_steady, capability or (8, 6), limit or scratch.cap())


@dataclass(frozen=True)
class Trial:
    """What it takes to time the kernels of an operation."""

    written: int
    """What they write to, for as long as they are timed."""
    in_turn: tuple[int, ...]
    """The workspace of one after the other, as far as it is more than before."""
    chosen: int
    """The workspace of the fastest."""


FirstWorkspace = Callable[[Step, int, int], Trial | int]
"""Scratch bytes of operation `index` of a step at a batch size when it runs for the first time."""


def autotuning_workspace(capability: tuple[int, int] | None, limit: int | None = None) -> FirstWorkspace:
    """What each operation takes while its kernels are timed, where cuDNN cannot be asked for them."""
    return partial(_autotuning, capability or (8, 6), limit or scratch.cap())


def _steady(capability: tuple[int, int], limit: int, step: Step, index: int, batch: int) -> int:
    op = step.ops[index]
    if op.type.startswith("CudnnRNN"):
        layer = _recurrent(step, op, batch)
        return layer.scratch_bytes if layer else 0
    conv = convolution(step, index, batch)
    if conv is None or conv.is_matrix_product:
        return 0
    size = _converted(conv, capability)
    return size if size <= limit else 0


def _autotuning(capability: tuple[int, int], limit: int, step: Step, index: int, batch: int) -> Trial | int:
    conv = convolution(step, index, batch)
    chosen = _steady(capability, limit, step, index, batch)
    if conv is None or conv.is_matrix_product:
        return chosen
    sizes = [_converted(conv, capability)]
    if conv.problem:
        left_out = fourier_engine(conv.problem) if scratch.leaves_fft_kernels_out() else None
        sizes += [size for engine, size in kernels_left_out(conv.problem) if engine != left_out]
    return trial(conv, [size for size in sizes if size <= limit], chosen)


def trial(conv: Convolution, sizes: Iterable[int], chosen: int) -> Trial:
    """Kernels with these workspaces, timed one after the other."""
    written = {"input": conv.image_bytes, "filter": conv.filter_bytes}.get(conv.kind, conv.result_bytes)
    rising: list[int] = []
    for size in sizes:
        if size > (rising[-1] if rising else 0):
            rising.append(size)
    return Trial(written + _RED_ZONES, tuple(size + _RED_ZONES for size in rising), chosen)


def _converted(conv: Convolution, capability: tuple[int, int]) -> int:
    inputs, outputs = conv.channels
    # A fused kernel writes its result where it belongs; only the input is converted.
    result_bytes = 0 if conv.kind == "fused" else conv.result_bytes * max(outputs, _VECTOR) // max(outputs, 1)
    if conv.channels_last:
        # Half precision needs no conversion; only a filter gradient keeps partial results.
        return _partial_results(conv) if conv.kind == "filter" and not conv.is_pointwise else 0
    if conv.item_bytes < 4 or capability < _TENSOR_CORE_FP32:
        return 0
    if inputs < _VECTOR and not conv.strided:
        return 0
    extra = _partial_results(conv) if conv.kind == "filter" else conv.filter_bytes
    if conv.is_pointwise and min(conv.spatial, default=1) >= _SMALL_IMAGE:
        if conv.kind != "filter":
            return 0
        if outputs >= _VECTOR:
            return extra
    return conv.padded_bytes + result_bytes + extra


def _partial_results(conv: Convolution) -> int:
    if not conv.filter_bytes:
        return 0
    copies = max(1, min(_MOST_PARTIAL_RESULTS, _PARTIAL_RESULTS // conv.filter_bytes))
    return copies * conv.filter_bytes


@dataclass(frozen=True)
class _Cell:
    """What cuDNN computes a recurrent layer with, in units of the layer's width, for each sample."""

    gates: int
    kept: int
    """What of each time step stays for the backward pass."""
    states: int
    """What is there once."""


# Read off 40 layers of many shapes on an H200, to the byte (cuDNN 9.19, float32; bfloat16 is computed in float32).
_CELLS = {"lstm": _Cell(gates=4, kept=5, states=11), "gru": _Cell(gates=3, kept=6, states=5)}
_RECURRENT_SCRATCH, _RECURRENT_ALIGNMENT = 8 * MIB, 256


@dataclass(frozen=True)
class _Recurrent:
    """The shapes of a recurrent layer."""

    cell: _Cell
    steps: int
    samples: int
    inputs: int
    width: int

    @property
    def scratch_bytes(self) -> int:
        weights = self.cell.gates * self.width * (self.inputs + self.width)
        # Samples come first and are sorted by time, there and back; with them the products of all time steps.
        sequences = 3 * self.steps * self.samples * (self.inputs + self.width)
        states = self.cell.states * self.samples * self.width
        return _RECURRENT_SCRATCH + 4 * (weights + sequences + states) + _RECURRENT_ALIGNMENT

    @property
    def kept_bytes(self) -> int:
        return 4 * self.cell.kept * self.steps * self.samples * self.width + _RECURRENT_ALIGNMENT


def reserve_space(step: Step, op: Op, batch: int) -> int:
    """What cuDNN keeps of a recurrent layer for its backward pass; its shape is known only to cuDNN."""
    layer = _recurrent(step, op, batch)
    return layer.kept_bytes if layer else 0


def _recurrent(step: Step, op: Op, batch: int) -> _Recurrent | None:
    operands = [step.ops[source].outputs[output] for source, output in op.inputs[:2]]
    sequence, state = (each.dimensions(batch) for each in operands)
    if sequence is None or state is None:
        return None
    cell = _CELLS.get(str(op.attributes.get("rnn_mode", "lstm")), _CELLS["gru"])
    samples, steps, inputs = sequence
    return _Recurrent(cell, steps, samples, inputs, state[-1])
