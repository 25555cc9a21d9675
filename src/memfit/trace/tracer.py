"""A Keras model to its steps."""

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from memfit.compat.optimizers import optimizers_of
from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.hardware.catalog import GPU
from memfit.trace import grappler
from memfit.trace.batch import batch_spec, tracing_size
from memfit.trace.calls import open_calls
from memfit.trace.folding import smaller_size
from memfit.trace.function import TraceError, build_optimizer, has_own_step, trace
from memfit.trace.loops import straighten, with_lists
from memfit.trace.reader import layer_of, part_of, read_step
from memfit.trace.source import sources_of
from memfit.trace.step import Phase, Step, Variable, VariableKind

# Optimizers that a step of a model's own did not use: compile() makes an RMSprop where it is given none.
_unused: weakref.WeakSet[Any] = weakref.WeakSet()


def trace_step(
    model: Any, phase: Phase, *, gpu: GPU | None, data: Any | None = None, batch_size: int | None = None
) -> Step:
    """Trace a step of a model and optimise it as TensorFlow would for the target; see `traced`."""
    return traced(model, phase, gpu=gpu, data=data, batch_size=batch_size)()


def traced(
    model: Any, phase: Phase, *, gpu: GPU | None, data: Any | None = None, batch_size: int | None = None
) -> Callable[[], Step]:
    """Trace a step of a model.

    Args:
        model: A compiled Keras model; with `data` it need not be built.
        phase: Which step.
        gpu: The target; `None` is the CPU.
        data: An example batch, where the model does not say what it looks like.
        batch_size: The size to trace with where the model takes no other; the step then holds for this size only.

    Returns:
        Optimises the step as TensorFlow would for the target; another thread may do so.

    Raises:
        InputError: If the model is not ready.
        TraceError: If its step cannot be traced.
    """
    refuse_unready(model, data)
    spec = batch_spec(model, data)
    build(model, spec, batch_size)
    # A step that works through its batch in slices says how many rows they have: a whole number of them is traced.
    slice_rows = getattr(model.train_step, "slice_rows", 1) if phase == "train" else 1
    size = tracing_size(model.variables, spec(1)) * slice_rows
    only_batch = False
    try:
        concrete = trace(model, phase, spec(size), gpu=gpu is not None)
        if (smaller := smaller_size(concrete.graph, size)) != size:
            size = smaller * slice_rows
            concrete = trace(model, phase, spec(size), gpu=gpu is not None)
    except TraceError:
        if batch_size is None:
            raise
        concrete, size, only_batch = trace(model, phase, spec(batch_size), gpu=gpu is not None), batch_size, True
    kinds = list(_kinds(model))
    owner = Owner(
        variables=_captured(kinds, concrete),
        layers=[layer.name for layer in model._flatten_layers(include_self=False)],
        optimizers=[optimizer.name for optimizer in optimizers_of(model)] if phase == "train" else [],
        sources=sources_of(model),
        idle=_idle(kinds, concrete) if phase == "train" else [],
    )
    return partial(read_concrete, concrete, phase, owner, gpu=gpu, size=size, only_batch=only_batch)


@dataclass(frozen=True)
class Owner:
    """Whose a traced step is: what its variables and operations are called."""

    variables: Mapping[str, tuple[str, VariableKind]]
    """Name and kind of the variable behind each captured handle, in the order of their creation."""
    layers: Iterable[str] = ()
    optimizers: Iterable[str] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    idle: Iterable[Variable] = ()
    """Variables that are in memory, though the step does not use them."""


def read_concrete(
    concrete: Any, phase: Phase, owner: Owner, *, gpu: GPU | None, size: int, only_batch: bool = False
) -> Step:
    """Optimise a traced function as TensorFlow would for the target, and read it.

    Args:
        concrete: The concrete function.
        phase: Which step it is.
        owner: What its variables and operations are called.
        gpu: The target; `None` is the CPU.
        size: The batch size it was traced with.
        only_batch: Whether it could be traced with that batch size only.
    """
    traced = grappler.meta_graph(concrete, gpu=gpu is not None)
    graph_def = grappler.optimise(traced, gpu)
    wanted = grappler.alone(graph_def)
    open_calls(graph_def)
    repeats = straighten(graph_def, wanted)
    properties = with_lists(grappler.output_properties(graph_def, wanted), graph_def, repeats)

    def read(outcome: bool, otherwise: Step | None) -> Step:
        return read_step(
            graph_def,
            properties,
            batch=size,
            only_batch=only_batch,
            outcome=outcome,
            otherwise=otherwise,
            phase=phase,
            gpu=gpu is not None,
            variables=owner.variables,
            layers=layer_of(owner.layers),
            part=part_of(*owner.optimizers),
            sources=owner.sources,
            idle=owner.idle,
        )

    has_conditions = any(node.op == "Switch" for node in graph_def.node)
    return read(True, read(False, None) if has_conditions else None)


def refuse_unready(model: Any, data: Any | None = None) -> None:
    """Say which call is missing before a model can be traced.

    Args:
        model: The model.
        data: An example batch; a model that is not built can be built from it.
    """
    if not isinstance(model, keras().Model):
        raise InputError(f"expected a Keras model, got {type(model).__name__}.")
    if has_own_step(model):
        return  # it may have a compile() of its own, and need not be callable as a whole
    if not model.built and data is None:
        raise InputError(
            f"{model.name!r} is not built, so its variables do not exist yet. "
            "Call model.build((None, ...)) with the input shape, give the model an Input layer, or pass an example "
            "batch as data=(x, y)."
        )
    if not model.compiled or getattr(model, "optimizer", None) is None:
        raise InputError(
            f"{model.name!r} is not compiled, so its training step is not known. "
            'Call model.compile(optimizer="adam", loss=...) first.'
        )


def build(model: Any, spec: Callable[[int], Any], batch_size: int | None) -> None:
    """Create the variables that the first step of `fit` would create; nothing is run.

    Args:
        model: The model.
        spec: What a batch looks like.
        batch_size: The batch size the user trains with, where it is known.

    Raises:
        TraceError: If the model cannot be called on such a batch.
    """
    own_step = has_own_step(model)
    if not model.built and not own_step:
        tf = tensorflow()
        unsized = tf.nest.map_structure(lambda each: tf.TensorSpec([None, *each.shape[1:]], each.dtype), spec(1))
        try:
            model._symbolic_build(data_batch=unsized)
        except Exception:  # noqa: BLE001 (a layer may need a batch of a known size; tracing builds it too)
            trace(model, "train", spec(batch_size or 1), gpu=False)
    build_optimizer(model)
    if own_step and _is_unbuilt(model):
        # With the size the user trains with: variables made in a trace that fails would be lost.
        trace(model, "train", spec(batch_size or 1), gpu=False)
        _unused.update(optimizer for optimizer in optimizers_of(model) if not optimizer.built)


def _is_unbuilt(model: Any) -> bool:
    if any(not layer.built for layer in model._flatten_layers(include_self=False)):
        return True
    return any(not optimizer.built and optimizer not in _unused for optimizer in optimizers_of(model))


def _kinds(model: Any) -> Iterator[tuple[Any, VariableKind]]:
    """All variables of a model with their kinds, in the order in which they were created."""
    trainable = {id(variable) for variable in model.trainable_variables}
    slots = [variable for optimizer in optimizers_of(model) for variable in optimizer.variables]
    optimizer = {id(variable) for variable in slots}
    for variable in model.variables:
        if id(variable) not in optimizer:
            seed = "seed_generator" in variable.path
            yield variable, "parameter" if id(variable) in trainable else "seed" if seed else "state"
    for variable in {id(slot): slot for slot in slots}.values():
        yield variable, "optimizer"
    for variable in model.metrics_variables:
        yield variable, "metric"


def _captured(kinds: Iterable[tuple[Any, VariableKind]], concrete: Any) -> dict[str, tuple[str, VariableKind]]:
    """Name and kind of the variable behind each captured handle."""
    captured = {id(external): internal.op.name for external, internal in concrete.graph.captures}
    found: dict[str, tuple[str, VariableKind]] = {}
    for variable, kind in kinds:
        name = captured.get(id(variable.value.handle))
        if name is not None:
            found[name] = (variable.path, kind)
    return found


def _idle(kinds: Iterable[tuple[Any, VariableKind]], concrete: Any) -> list[Variable]:
    """The weights and slots that the step does not use."""
    captured = {id(external) for external, _ in concrete.graph.captures}
    return [
        Variable(variable.path, kind, int(variable.value.dtype.size) * math.prod(variable.shape))
        for variable, kind in kinds
        if kind in ("parameter", "state", "optimizer") and id(variable.value.handle) not in captured
    ]
