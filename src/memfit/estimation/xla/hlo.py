"""A training step as the HLO module XLA would be given, made on the CPU.

TensorFlow lowers a jitted function without compiling it. The module names its variables as aliased parameters, so
that a compiler knows which buffers are updated in place.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from memfit import framework
from memfit.compat.graph_gradients import gradients_kept_by_graphs
from memfit.errors import InputError, MemfitError
from memfit.estimation.xla.program import Program, read_program, read_shape
from memfit.trace.function import tracing

ParameterKind = Literal["data", "variable", "constant"]


class NotCompilableError(MemfitError):
    """XLA cannot compile this step, so it would not run with `jit_compile=True` either."""

    exit_code = 1


@dataclass(frozen=True)
class Parameter:
    """One argument of the compiled step."""

    kind: ParameterKind
    """`data`: the batch. `variable`: weights, slots, metrics. `constant`: a tensor the function closed over."""
    size: int
    dtype: str
    updated: bool
    """Whether the step writes it, in place when nothing else holds it."""


@dataclass(frozen=True)
class LoweredStep:
    """A step in HLO, before any optimisation."""

    hlo: bytes
    """A serialized `HloModuleProto`."""
    parameters: tuple[Parameter, ...]
    function: Any = field(default=None, compare=False, repr=False)
    """The concrete function it was lowered from."""
    arguments: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    """A `tf.TensorSpec` of each argument of the function."""

    def parameter_bytes(self, kind: ParameterKind, *, alignment: int = 1) -> int:
        """The bytes of all parameters of one kind, each rounded up to the alignment."""
        return sum(-(-each.size // alignment) * alignment for each in self.parameters if each.kind == kind)


def lower_to_hlo(step: Callable[[Any], Any], specs: Any) -> LoweredStep:
    """Lower one call of `step` to HLO, on the CPU and without running it.

    Args:
        step: A Python function of one positional argument, the batch. Variables it reads must exist already
            (`model.optimizer.build(model.trainable_variables)`), because a step that makes variables cannot be lowered.
        specs: The batch as `tf.TensorSpec`s in any nesting of tuples, lists and dicts, every dimension known.

    Returns:
        The module, and what each of its parameters is.

    Raises:
        InputError: If a dimension of a spec is unknown.
        NotCompilableError: If the step contains an operation XLA has no lowering for.

    Example:
        >>> lowered = lower_to_hlo(lambda data: model.train_step(data), (x_spec, y_spec))  # doctest: +SKIP
        >>> lowered.parameter_bytes("data")  # doctest: +SKIP
        19267712
    """
    tf = framework.tensorflow()
    leaves = tf.nest.flatten(specs)
    for leaf in leaves:
        if not leaf.shape.is_fully_defined():
            raise InputError(
                f"the batch has a spec of shape {leaf.shape}, and XLA compiles for fixed shapes only. "
                "Give every dimension a size, the batch size first."
            )

    def on_leaves(*tensors: Any) -> Any:
        return step(tf.nest.pack_sequence_as(specs, tensors))

    function = tf.function(on_leaves, jit_compile=True, autograph=False)
    try:
        # Reading the function once shows what it captures, in the order of the module's parameters.
        with tracing(), gradients_kept_by_graphs():
            concrete = function.get_concrete_function(*leaves)
            captured = concrete.captured_inputs
            serialized = function.experimental_get_compiler_ir(*leaves)(stage="hlo_serialized")
    except (tf.errors.OpError, ValueError, NotImplementedError) as error:
        raise NotCompilableError(
            f"XLA cannot compile this step: {_first_line(error)} Train it with jit_compile=False."
        ) from error
    module = _hlo_pb2().HloModuleProto.FromString(serialized)
    strip_copies(module)
    kinds: list[ParameterKind] = ["data"] * len(leaves)
    kinds += ["variable" if tensor.dtype == tf.resource else "constant" for tensor in captured]
    return LoweredStep(module.SerializeToString(), _parameters(module, kinds), concrete, tuple(leaves))


def read_lowered(lowered: LoweredStep) -> Program:
    """The lowered module in terms of buffers."""
    return read_program(_hlo_pb2().HloModuleProto.FromString(lowered.hlo))


def strip_copies(module: Any) -> int:
    """Remove `copy` instructions from an `HloModuleProto` in place and say how many there were.

    TensorFlow copies results it returns twice (`XLA_Retvals`). The way through StableHLO knows no copy, and XLA puts
    in those it needs.
    """
    removed = 0
    for computation in module.computations:
        source = {each.id: each.operand_ids[0] for each in computation.instructions if each.opcode == "copy"}
        if not source:
            continue
        removed += len(source)
        kept = []
        for instruction in computation.instructions:
            if instruction.id in source:
                continue
            instruction.operand_ids[:] = [_resolve(source, each) for each in instruction.operand_ids]
            instruction.control_predecessor_ids[:] = [
                _resolve(source, each) for each in instruction.control_predecessor_ids
            ]
            clone = type(instruction)()
            clone.CopyFrom(instruction)
            kept.append(clone)
        computation.root_id = _resolve(source, computation.root_id)
        del computation.instructions[:]
        computation.instructions.extend(kept)
    return removed


def _resolve(source: dict[int, int], identifier: int) -> int:
    while identifier in source:
        identifier = source[identifier]
    return identifier


def _parameters(module: Any, kinds: list[ParameterKind]) -> tuple[Parameter, ...]:
    shapes = [read_shape(each) for each in module.host_program_shape.parameters]
    updated = {entry.parameter_number for entry in module.input_output_alias.entries}
    if len(shapes) == 1 and len(kinds) != 1:
        # One tuple of all arguments: the numbers to look for are inside it.
        shapes = list(shapes[0].parts)
        updated = {entry.parameter_shape_index[0] for entry in module.input_output_alias.entries}
    # Arguments XLA needs at compile time (shapes, axes) are gone from the module; they are never variables.
    if len(kinds) > len(shapes):
        kinds = [kind for kind in kinds if kind != "constant"]
    return tuple(
        Parameter(kind=kind, size=shape.size, dtype=shape.dtype, updated=number in updated)
        for number, (kind, shape) in enumerate(zip(kinds, shapes, strict=False))
    )


def _hlo_pb2() -> ModuleType:
    framework.tensorflow()
    return import_module("tensorflow.compiler.xla.service.hlo_pb2")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".") + "."
