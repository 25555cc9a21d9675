"""What an operation does with memory: whose buffer its output is, and what it needs while it runs.

Read in TensorFlow 2.21's kernels (op_kernel.cc for the forwarding rule, core/kernels/* for each operation) and
checked against every allocation of recorded steps on an H200.
"""

from collections.abc import Sequence
from itertools import pairwise

from memfit.trace.step import REDUCTIONS, Op

# The output is the input's buffer, whatever else holds it; what is popped from a list is a part of the list.
ALIASES = frozenset(
    "Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient Snapshot EnsureShape Bitcast Switch "
    "RefSwitch Merge Enter Exit NextIteration _Retval CheckNumerics TensorListPopBack CallStart CallEnd".split()
)
# Of these, those whose outputs are their inputs one by one; a call that ends holds its arguments behind its results.
ONE_BY_ONE = frozenset(("IdentityN", "CallStart", "CallEnd"))
# What even a CPU runs at once, without its pool of threads (IsExpensive in their kernels).
CHEAP = frozenset(
    "Const Identity IdentityN Reshape Squeeze ExpandDims StopGradient Shape Rank Size ShapeN NoOp Switch Merge Enter "
    "Exit NextIteration LoopCond VarHandleOp _Arg _Retval StridedSlice StridedSliceGrad ControlTrigger "
    "BroadcastGradientArgs PreventGradient Snapshot".split()
)
# What oneDNN replaces on a CPU (mkl_layout_pass.cc).
REWRITTEN = frozenset(
    "Conv2D _FusedConv2D Conv2DBackpropInput Conv2DBackpropFilter Conv3D Conv3DBackpropInputV2 Conv3DBackpropFilterV2 "
    "DepthwiseConv2dNative MatMul _FusedMatMul BatchMatMulV2 MaxPool MaxPoolGrad AvgPool AvgPoolGrad MaxPool3D "
    "MaxPool3DGrad AvgPool3D AvgPool3DGrad Einsum FusedBatchNormV3 FusedBatchNormGradV3 Softmax".split()
)
# The output is the input's buffer when nothing moves, repeats or is left out.
ALIASES_IF_SAME_SIZE = frozenset(
    "Tile BroadcastTo Slice StridedSlice Sum Mean Max Min Prod All Any Pack ConcatV2 Transpose Pad Unpack Split".split()
)
_ELEMENTWISE_1 = frozenset(
    "Abs Neg Exp Expm1 Log Log1p Sqrt Rsqrt Square Tanh Sigmoid Relu Relu6 Elu Selu Softplus Softsign Sign Floor Ceil "
    "Round Rint Reciprocal Inv Sin Cos Tan Erf Erfc Erfinv LogicalNot LeakyRelu Softmax LogSoftmax ClipByValue "
    "ZerosLike OnesLike Digamma Lgamma BiasAdd TensorScatterUpdate TensorScatterAdd TensorStridedSliceUpdate "
    "_UnaryOpsComposition".split()
)
_ELEMENTWISE_2 = frozenset(
    "Add AddV2 Sub Mul RealDiv Div DivNoNan MulNoNan Maximum Minimum Pow SquaredDifference FloorDiv FloorMod Xdivy "
    "Xlogy LogicalAnd LogicalOr BitwiseAnd BitwiseOr ReluGrad Relu6Grad EluGrad SeluGrad LeakyReluGrad SigmoidGrad "
    "TanhGrad RsqrtGrad SqrtGrad ReciprocalGrad InvGrad SoftplusGrad SoftsignGrad".split()
)

# Outputs that are taken after scratch memory; others come before it.
AFTER_SCRATCH = {"CudnnRNNV3": 3}
# The beginnings of the types of operations that hold more than inputs and outputs while they run on a GPU, and on both.
NEED_MORE = (
    *("Conv2D", "Conv3D", "_FusedConv2D", "Softmax", "LogSoftmax", "MaxPool3D", "AvgPool3D"),
    "CudnnRNN",
)
NEED_MORE_EVERYWHERE = frozenset(("Einsum", *REDUCTIONS))
_DIMENSIONS_OF_A_REDUCTION = 3


def forwardable(op: Op, output: int) -> Sequence[int]:
    """The inputs whose buffer an output may take over, in the order the kernel tries them."""
    if op.type in ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"):
        return (0,) if output == 1 else ()
    if output != 0:
        return ()
    if op.type in _ELEMENTWISE_1:
        return (0,)
    if op.type in _ELEMENTWISE_2:
        return (0, 1)
    if op.type == "AddN":
        return range(len(op.inputs))
    if op.type in ("Select", "SelectV2"):
        return (1, 2)
    return ()


def temporaries(op: Op, output_bytes: int, input_bytes: Sequence[int]) -> list[int]:
    """Buffers a kernel holds besides inputs and outputs, without cuDNN's workspace."""
    match op.type:
        case "Softmax" | "LogSoftmax":
            return [output_bytes, output_bytes]
        case "Einsum":
            return _einsum(str(op.attributes.get("equation", "")), output_bytes, input_bytes)
        case "MaxPool3D" | "AvgPool3D":
            return [input_bytes[0], output_bytes]  # cuDNN pools volumes in NCDHW only
        case "MaxPool3DGrad":
            return [output_bytes, input_bytes[1], output_bytes, input_bytes[1]]
    return []


def convolution_temporaries(kind: str, image: int, padded: int, filters: int) -> tuple[Sequence[int], Sequence[int]]:
    """What TensorFlow's convolution kernels copy for cuDNN before they take its scratch memory, and after that."""
    # The filter in cuDNN's order; for a gradient by the input also a second whole result that is swapped in, without
    # the padding where there is one.
    is_padded = padded != image
    if kind == "input":
        return (filters, padded), (image,) if is_padded else ()
    return (padded, filters) if is_padded else (filters,), ()


def recurrent_temporaries(op: Op, output_bytes: Sequence[int], input_bytes: Sequence[int]) -> list[int]:
    """The copies in float32 that a recurrent layer in bfloat16 computes with (cudnn_rnn_ops.cc)."""
    if op.outputs[0].dtype != "bfloat16":
        return []
    if op.type == "CudnnRNNV3":
        return [2 * size for size in (*input_bytes[:4], *output_bytes[:3])]
    # Input, states, weights and results, their gradients, and what was kept: that is float32 already, and copied.
    sequence, state, cell, weights = input_bytes[:4]
    result, kept = input_bytes[5], input_bytes[11]
    states = [2 * size for size in (state, cell)] * 3
    return [*(2 * size for size in (sequence, weights, result, result, sequence, weights)), *states, kept]


def is_reduced_in_pieces(dimensions: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether a reduction first copies its input, to have what it reduces in one piece (reduction_ops_common.h).

    Neighbouring dimensions that are all reduced or all kept are one to the kernel, and those of size 1 belong to any;
    it copes with three, as in group normalisation's `[samples, height x width, groups, channels]` over the second and
    the fourth it does not.
    """
    reduced = {axis % len(dimensions) for axis in axes} if dimensions else set()
    kinds = [number in reduced for number, size in enumerate(dimensions) if size != 1]
    return sum(1 for before, after in pairwise([None, *kinds]) if before != after) > _DIMENSIONS_OF_A_REDUCTION


def _einsum(equation: str, output_bytes: int, input_bytes: Sequence[int]) -> list[int]:
    """Operands are transposed to batch matrix products, and the result back (linalg/einsum_op_impl.h)."""
    left, _, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != 2 or len(input_bytes) < 2:
        return [*input_bytes, output_bytes]
    first, second = terms
    batch = [label for label in first if label in second and label in result]
    contracted = [label for label in first if label in second and label not in result]
    free = [[label for label in term if label not in batch and label not in contracted] for term in terms]
    copies = []
    for term, own, size in zip(terms, free, input_bytes, strict=False):
        if list(term) not in (batch + own + contracted, batch + contracted + own):
            copies.append(size)
    if list(result) not in (batch + free[0] + free[1], batch + free[1] + free[0]):
        copies.append(output_bytes)
    return copies
