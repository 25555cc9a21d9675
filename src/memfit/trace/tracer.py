"""A Keras model to its steps."""

from typing import Any

from memfit.errors import InputError
from memfit.framework import keras
from memfit.hardware.catalog import GPU
from memfit.trace import grappler
from memfit.trace.batch import batch_spec, tracing_size
from memfit.trace.calls import open_calls
from memfit.trace.creation import created_at
from memfit.trace.function import trace
from memfit.trace.loops import straighten, with_lists
from memfit.trace.reader import layer_of, part_of, read_step
from memfit.trace.source import sources_of
from memfit.trace.step import Phase, Step, VariableKind


def trace_step(model: Any, phase: Phase, *, gpu: GPU | None, data: Any | None = None) -> Step:
    """Trace a step of a model and optimise it as TensorFlow would for the target.

    Args:
        model: A built, compiled Keras model.
        phase: Which step.
        gpu: The target; `None` is the CPU.
        data: An example batch, where the model does not say what it looks like.

    Raises:
        InputError: If the model is not ready.
        TraceError: If its step cannot be traced.
    """
    refuse_unready(model)
    spec = batch_spec(model, data)
    # A step that works through its batch in slices says how many rows they have: a whole number of them is traced.
    slice_rows = getattr(model.train_step, "slice_rows", 1) if phase == "train" else 1
    size = tracing_size(model, spec) * slice_rows
    concrete = trace(model, phase, spec(size), gpu=gpu is not None)
    traced = grappler.meta_graph(concrete, gpu=gpu is not None)
    graph_def = grappler.optimise(traced, gpu)
    open_calls(graph_def)
    repeats = straighten(graph_def, grappler.fetches(concrete))
    properties = with_lists(grappler.output_properties(graph_def, grappler.fetches(concrete)), graph_def, repeats)
    # A GPU keeps the optimiser's order there: so updates inside a condition were recorded.
    created = created_at(traced.graph_def, (node.name for node in graph_def.node), in_functions=gpu is None)
    optimizer = model.optimizer.name if phase == "train" else None

    def read(outcome: bool, otherwise: Step | None) -> Step:
        return read_step(
            graph_def,
            properties,
            batch=size,
            outcome=outcome,
            otherwise=otherwise,
            created_at=created,
            phase=phase,
            gpu=gpu is not None,
            variables=_variables(model, concrete),
            layers=layer_of(layer.name for layer in model._flatten_layers(include_self=False)),
            part=part_of(optimizer),
            sources=sources_of(model),
        )

    has_conditions = any(node.op == "Switch" for node in graph_def.node)
    return read(True, read(False, None) if has_conditions else None)


def refuse_unready(model: Any) -> None:
    """Say which call is missing before a model can be traced."""
    if not isinstance(model, keras().Model):
        raise InputError(f"expected a Keras model, got {type(model).__name__}.")
    if not model.built:
        raise InputError(
            f"{model.name!r} is not built, so its variables do not exist yet. "
            "Call model.build((None, ...)) with the input shape, or give the model an Input layer."
        )
    if not model.compiled or model.optimizer is None:
        raise InputError(
            f"{model.name!r} is not compiled, so its training step is not known. "
            'Call model.compile(optimizer="adam", loss=...) first.'
        )


def _variables(model: Any, concrete: Any) -> dict[str, tuple[str, VariableKind]]:
    """Name and kind of the variable behind each captured handle, in the order the variables were created."""
    captured = {id(external): internal.op.name for external, internal in concrete.graph.captures}
    trainable = {id(variable) for variable in model.trainable_variables}
    optimizer = {id(variable) for variable in model.optimizer.variables}
    kinds: list[tuple[Any, VariableKind]] = []
    for variable in model.variables:
        if id(variable) not in optimizer:
            seed = "seed_generator" in variable.path
            kinds.append((variable, "parameter" if id(variable) in trainable else "seed" if seed else "state"))
    kinds += [(variable, "optimizer") for variable in model.optimizer.variables]
    kinds += [(variable, "metric") for variable in model.metrics_variables]
    found: dict[str, tuple[str, VariableKind]] = {}
    for variable, kind in kinds:
        name = captured.get(id(variable.value.handle))
        if name is not None:
            found[name] = (variable.path, kind)
    return found
