"""Which channels of a model belong together: those that one layer makes and another adds must stay or go as one.

Every channel a layer makes gets a number; what layers do to channels is done to arrays of these numbers. Adding two
tensors joins their numbers pair by pair, concatenating them concatenates the arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfit.errors import InputError
from memfit.framework import keras
from memfit.slimming.rebuild import call_counts
from memfit.techniques.layer_graph import LayerCall, LayerGraph

Numbers = np.ndarray[tuple[int, ...], np.dtype[Any]]

_ARITHMETIC = ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum")


@dataclass(frozen=True)
class ChannelGroup:
    """Filters of one or several layers that are kept or removed together."""

    layers: tuple[str, ...]
    numbers: Numbers
    """One number for each filter that may go."""
    scores: Numbers
    """How much each filter weighs: its norm, next to that of the layer's others."""


class Channels:
    """The channels of every tensor of a model."""

    def __init__(self, graph: LayerGraph, shapes: dict[int, tuple[int | None, ...]]) -> None:
        self.graph, self.shapes = graph, shapes
        self.of: dict[int, Numbers] = {}
        """For each place the numbers of its channels, along the last axis."""
        self._parent: list[int] = []
        self._makers: dict[str, tuple[LayerCall, Numbers]] = {}
        self._fixed: list[Numbers] = []
        self._refuse()
        for place in graph.inputs:
            self.of[place] = self._new(place)
            self._fixed.append(self.of[place])
        for call in graph.calls:
            self._visit(call)
        self._fixed += [self.of[place] for place in graph.outputs]

    def groups(self) -> list[ChannelGroup]:
        """The filters that may be removed, with what is needed to choose among them."""
        fixed = {self._root(number) for array in self._fixed for number in array}
        scores: dict[int, float] = {}
        together = _Joined()
        for name, (call, numbers) in self._makers.items():
            for number, score in zip(numbers, _filter_norms(call.layer), strict=True):
                root = self._root(number)
                scores[root] = scores.get(root, 0.0) + float(score)
                together.join(name, root)
        found = []
        for members in together.groups():
            names = tuple(each for each in members if isinstance(each, str))
            free = np.array(sorted({each for each in members if isinstance(each, int)} - fixed), int)
            if len(free):
                found.append(ChannelGroup(names, free, np.array([scores[each] for each in free])))
        return found

    def kept(self, place: int, removed: set[int]) -> Numbers:
        """The positions of the channels that stay."""
        return np.array([at for at, number in enumerate(self.of[place]) if self._root(number) not in removed], int)

    def _refuse(self) -> None:
        """Refuse, by name, layers with filters that cannot be narrowed."""
        counts = call_counts(self.graph)
        reasons = []
        for call in self.graph.calls:
            if not makes_channels(call.layer):
                continue
            if counts[id(call.layer)] > 1:
                reasons.append(f"{call.name} (called more than once)")
            elif getattr(call.layer, "groups", 1) > 1:
                reasons.append(f"{call.name} (grouped, groups={call.layer.groups})")
            elif getattr(call.layer, "data_format", None) == "channels_first":
                reasons.append(f"{call.name} (channels_first)")
        if reasons:
            raise InputError(
                f"filters cannot be removed through {'; '.join(sorted(set(reasons)))}. "
                "Give each call a layer of its own and leave grouped convolutions out."
            )

    def _visit(self, call: LayerCall) -> None:
        inputs = [self.of[place] for place in call.inputs]
        output = call.outputs[0]
        if makes_channels(call.layer):
            self.of[output] = self._new(output)
            self._makers[call.name] = (call, self.of[output])
        elif call.layer is None:
            self.of |= dict(zip(call.outputs, inputs, strict=True))
        elif len(call.outputs) == 1 and (found := self._passed(call, inputs)) is not None:
            self.of[output] = found
        else:
            # What is done to the channels is not known: all of them stay.
            self._fixed += inputs
            for place in call.outputs:
                self.of[place] = self._new(place)
                self._fixed.append(self.of[place])

    def _passed(self, call: LayerCall, inputs: Sequence[Numbers]) -> Numbers | None:
        """The channels of the output of a layer that makes none of its own; `None` if they cannot be followed."""
        kinds, layer, last = keras().layers, call.layer, self.shapes[call.outputs[0]][-1]
        if isinstance(layer, kinds.Concatenate):
            if layer.axis in (-1, len(self.shapes[call.outputs[0]]) - 1):
                return np.concatenate(inputs)
            return self._joined(inputs)
        if isinstance(layer, (kinds.DepthwiseConv2D, kinds.DepthwiseConv1D)):
            return np.repeat(inputs[0], layer.depth_multiplier)
        if isinstance(layer, kinds.Flatten):
            return np.tile(inputs[0], (last or 0) // len(inputs[0])) if len(inputs[0]) and last else None
        if isinstance(layer, _merging()) or _is_arithmetic(call):
            return self._joined(inputs)
        if len(inputs) == 1 and last == len(inputs[0]) and isinstance(layer, _channelwise()) and _last_axis(call, self):
            return inputs[0]
        return None

    def _joined(self, inputs: Sequence[Numbers]) -> Numbers | None:
        """Elementwise: channel by channel, or one channel for all."""
        widest = max(inputs, key=len)
        for each in inputs:
            if len(each) == len(widest):
                for left, right in zip(widest, each, strict=True):
                    self._parent[self._root(right)] = self._root(left)
            elif len(each) != 1:
                return None
        self._fixed += [each for each in inputs if len(each) == 1 < len(widest)]
        return widest

    def _new(self, place: int) -> Numbers:
        count = self.shapes[place][-1] if len(self.shapes[place]) > 1 else 0
        start = len(self._parent)
        self._parent += range(start, start + (count or 0))
        return np.arange(start, start + (count or 0))

    def _root(self, number: int) -> int:
        number = int(number)
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number


class _Joined:
    """Names and numbers in groups that have a member in common."""

    def __init__(self) -> None:
        self._group: dict[str | int, set[str | int]] = {}

    def join(self, left: str | int, right: str | int) -> None:
        one, other = self._group.setdefault(left, {left}), self._group.setdefault(right, {right})
        if one is other:
            return
        small, large = sorted((one, other), key=len)
        large |= small
        for each in small:
            self._group[each] = large

    def groups(self) -> list[set[str | int]]:
        return list({id(group): group for group in self._group.values()}.values())


def makes_channels(layer: Any) -> bool:
    """Whether a layer makes new channels out of all it is given."""
    kinds = keras().layers
    exact = (
        *(kinds.Conv1D, kinds.Conv2D, kinds.Conv3D, kinds.SeparableConv1D, kinds.SeparableConv2D),
        *(kinds.Conv1DTranspose, kinds.Conv2DTranspose, kinds.Conv3DTranspose, kinds.Dense),
    )
    return type(layer) in exact


def _filter_norms(layer: Any) -> Numbers:
    """The norm of each filter, next to the layer's average."""
    names = [variable.name for variable in layer.weights]
    kernel = layer.get_weights()[names.index("pointwise_kernel") if "pointwise_kernel" in names else 0]
    transposed = type(layer).__name__.endswith("Transpose")
    by_filter = np.moveaxis(kernel, -2 if transposed else -1, 0).reshape(kernel.shape[-2 if transposed else -1], -1)
    norms = np.linalg.norm(by_filter, axis=1)
    return np.asarray(norms / max(float(norms.mean()), 1e-12))


def _last_axis(call: LayerCall, channels: Channels) -> bool:
    """Whether a layer with weights or axes has them along the last axis, and the last axis comes out as it went in."""
    layer = call.layer
    axes = getattr(layer, "axis", None)
    if axes is not None:
        rank = len(channels.shapes[call.inputs[0]])
        flat = list(axes) if isinstance(axes, (list, tuple)) else [axes]
        if any(axis not in (-1, rank - 1) for axis in flat):
            return False
    return getattr(layer, "data_format", "channels_last") != "channels_first"


def _is_arithmetic(call: LayerCall) -> bool:
    """Whether a call is `a + b` or the like, of tensors and plain numbers."""
    if isinstance(call.layer, keras().layers.Layer) or type(call.layer).__name__ not in _ARITHMETIC:
        return False
    arguments = keras().tree.flatten((call.node.arguments.args, call.node.arguments.kwargs))
    return all(isinstance(each, (int, float, keras().KerasTensor)) for each in arguments)


def _merging() -> tuple[type, ...]:
    kinds = keras().layers
    return (kinds.Add, kinds.Subtract, kinds.Multiply, kinds.Average, kinds.Maximum, kinds.Minimum)


def _channelwise() -> tuple[type, ...]:
    """Layers that treat each channel alone."""
    kinds = keras().layers
    activations = (kinds.Activation, kinds.ReLU, kinds.LeakyReLU, kinds.ELU, kinds.PReLU)
    noise = (
        *(kinds.Dropout, kinds.SpatialDropout1D, kinds.SpatialDropout2D, kinds.SpatialDropout3D),
        *(kinds.GaussianNoise, kinds.GaussianDropout, kinds.AlphaDropout, kinds.ActivityRegularization),
    )
    names = [
        *(f"{kind}Pooling{size}D" for kind in ("Max", "Average", "GlobalMax", "GlobalAverage") for size in (1, 2, 3)),
        *(f"{kind}{size}D" for kind in ("ZeroPadding", "Cropping", "UpSampling") for size in (1, 2, 3)),
    ]
    shaping = tuple(getattr(kinds, name) for name in names)
    others = (kinds.BatchNormalization, kinds.LayerNormalization, kinds.Rescaling, kinds.Reshape, kinds.Identity)
    return (*activations, *noise, *shaping, *others)
