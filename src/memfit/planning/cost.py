"""How long a step takes on a GPU: what its operations compute and move, against what the card can do.

Only ratios of two steps are meant to be used: peak rates are never reached, by both alike.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfit.estimation.kernels import ALIASES
from memfit.estimation.regime import Regime
from memfit.estimation.workspace import convolution
from memfit.hardware.catalog import GPU
from memfit.trace.step import Op, Step

Numbers = np.ndarray[tuple[int, ...], np.dtype[Any]]

# A card that is known by its memory alone: floating-point operations and bytes of a middling one (RTX 3070).
_TYPICAL_FLOPS, _TYPICAL_BANDWIDTH = 20e12, 448e9


@dataclass(frozen=True)
class _Rates:
    """What of a card's peak rates is reached, and what each kernel costs besides."""

    flops: float
    bandwidth: float
    launch: float
    elementwise_launch: float
    update_launch: float
    elementwise_bytes: float
    """XLA writes one result for a chain of elementwise operations."""


# Fitted to steps of ResNet50, a U-Net and a transformer, plain, recomputed and in slices, on an H200
# (benchmarks/results/techniques_h200.json): ratios within 13 % in graph mode, within 18 % under XLA.
_RATES: dict[Regime, _Rates] = {
    "graph": _Rates(0.3, 0.5, 10e-6, 10e-6, 4e-6, 1.0),
    "xla": _Rates(0.5, 0.5, 4e-6, 1e-6, 1e-6, 0.3),
}
# A CPU's gradients of convolutions without a buffer of patches: three shapes took 1.1 to 1.9 times as long.
_WITHOUT_PATCHES = 1.5
_HALF = ("float16", "bfloat16")
_FREE = ALIASES | {"Const", "IteratorGetNext", "IteratorV2", "NoOp", "ReadVariableOp", "VarHandleOp"}
_WORK = ("Conv", "DepthwiseConv", "MatMul", "BatchMatMul", "Einsum", "CudnnRNN", "FusedBatchNorm", "MaxPool", "AvgPool")


@dataclass(frozen=True)
class CostModel:
    """Seconds of operations on a card.

    Args:
        gpu: The card.
        regime: Whether XLA compiles the step.
    """

    gpu: GPU
    regime: Regime

    def of(self, step: Step, batch: int) -> "StepCost":
        """The time of a step's operations at batch sizes up to `batch`."""
        rates = _RATES[self.regime]
        bandwidth = (self.gpu.bandwidth or _TYPICAL_BANDWIDTH) * rates.bandwidth
        rows: list[tuple[float, ...]] = []
        for number, op in enumerate(step.ops):
            if op.type in _FREE or all(each.on_host for each in op.outputs):
                rows.append((0.0, 0.0, 0.0, 0.0, 0.0))
                continue
            launch, share = rates.launch, 1.0
            if not op.type.startswith(_WORK):
                launch, share = rates.elementwise_launch, rates.elementwise_bytes
            if op.part == "update":
                launch = rates.update_launch
            peak = self._peak(op) * rates.flops / (_WITHOUT_PATCHES if op.attributes.get("_kernel") else 1.0)
            # Both follow the batch in a straight line, so two sizes say it all.
            few, many = ((_moved(step, op, size), floating_point_operations(step, number, size)) for size in (1, batch))
            rows.append(
                (launch, *(each * share / bandwidth for each in (few[0], many[0])), few[1] / peak, many[1] / peak)
            )
        parts = np.array([op.part for op in step.ops])
        return StepCost(np.array(rows), parts == "update", parts == "forward", batch)

    def _peak(self, op: Op) -> float:
        if op.outputs[0].dtype in _HALF:
            rate = self.gpu.tensor_flops or self.gpu.fp32_flops
        else:
            rate = self.gpu.tf32_flops or self.gpu.fp32_flops
        return rate or _TYPICAL_FLOPS


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step's operations: for each its launch, and moving and computing at batch 1 and at `batch`."""

    _rows: Numbers
    _is_update: Numbers
    _is_forward: Numbers
    _batch: int

    def each(self, batch: int) -> Numbers:
        """The time of every operation."""
        launch, moved, moved_many, computed, computed_many = self._rows.T
        share = (batch - 1) / max(1, self._batch - 1)
        found: Numbers = launch + np.maximum(
            moved + (moved_many - moved) * share, computed + (computed_many - computed) * share
        )
        return found

    def with_again(self, positions: Sequence[int]) -> "StepCost":
        """The same step with these operations run again behind it."""
        again = list(positions)
        neither = np.zeros(len(again), bool)
        is_update, is_forward = (np.concatenate((each, neither)) for each in (self._is_update, self._is_forward))
        return StepCost(np.concatenate((self._rows, self._rows[again])), is_update, is_forward, self._batch)

    def seconds(self, batch: int, slices: int = 1, passes: int = 1) -> float:
        """The time of a step that works through `slices` slices of `batch` samples and then updates once.

        Args:
            batch: Samples of a slice.
            slices: How many there are.
            passes: How often each runs forward.
        """
        each = self.each(batch)
        more = (passes - 1) * each[self._is_forward].sum()
        return float(slices * (each[~self._is_update].sum() + more) + each[self._is_update].sum())


def _moved(step: Step, op: Op, batch: int) -> int:
    operands = [step.ops[source].outputs[output] for source, output in op.inputs]
    return sum(each.bytes(batch) or 0 for each in (*operands, *op.outputs) if not each.on_host)


def floating_point_operations(step: Step, number: int, batch: int) -> float:
    """Multiplications and additions of a convolution or matrix product; 0 for everything else."""
    op = step.ops[number]
    counted = next((count for start, count in _COUNTED.items() if op.type.startswith(start)), None)
    return 0.0 if counted is None else counted(step, number, batch)


def _convolution(step: Step, number: int, batch: int) -> float:
    found = convolution(step, number, batch)
    if found is None:
        return 0.0
    elements = found.result_bytes / found.item_bytes
    return 2 * elements * math.prod(found.kernel) * found.channels[0]


def _depthwise(step: Step, number: int, batch: int) -> float:
    """As a convolution, but each result looks at one channel."""
    op = step.ops[number]
    operands = [step.ops[source].outputs[output] for source, output in op.inputs]
    if "BackpropInput" in op.type:
        filters, result = operands[1], operands[2]
    elif "BackpropFilter" in op.type:
        filters, result = op.outputs[0], operands[2]
    else:
        filters, result = operands[1], op.outputs[0]
    return 2.0 * (result.elements(batch) or 0) * math.prod((filters.dimensions(batch) or (0, 0))[:2])


def _matrix_product(step: Step, number: int, batch: int) -> float:
    op = step.ops[number]
    shapes = [step.ops[source].outputs[output].dimensions(batch) for source, output in op.inputs[:2]]
    result = op.outputs[0].dimensions(batch)
    if None in shapes or not result:
        return 0.0
    left, right = (math.prod(shape or ()) for shape in shapes)
    matrices = math.prod(result[:-2]) if op.type.startswith("Batch") else 1
    if op.type.startswith("Batch") and len(shapes[1] or ()) < len(result):
        right *= matrices
    inner = math.sqrt(left * right / (math.prod(result) * matrices)) if math.prod(result) else 0
    return 2 * math.prod(result) * inner


def _einsum(step: Step, number: int, batch: int) -> float:
    op = step.ops[number]
    equation = str(op.attributes.get("equation", ""))
    sizes: dict[str, int] = {}
    for labels, (source, output) in zip(equation.partition("->")[0].split(","), op.inputs, strict=False):
        for label, size in zip(labels, step.ops[source].outputs[output].dimensions(batch) or (), strict=False):
            sizes[label] = size
    return 2.0 * math.prod(sizes.values()) if sizes else 0.0


_COUNTED: dict[str, Callable[[Step, int, int], float]] = {
    "Conv": _convolution,
    "_FusedConv": _convolution,
    "DepthwiseConv": _depthwise,
    "_FusedDepthwiseConv": _depthwise,
    "MatMul": _matrix_product,
    "_FusedMatMul": _matrix_product,
    "BatchMatMul": _matrix_product,
    "Einsum": _einsum,
}
