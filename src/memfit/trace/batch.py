"""The batch a step is traced with: shapes and types of inputs and targets, without any data."""

from collections.abc import Callable, Iterable
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.trace.example import example_specs

# Batch sizes to trace with: primes, so that a dimension they divide is the batch's and nothing else's.
_PRIMES = (251, 257, 263, 269, 271, 277, 281, 283, 293, 307, 311, 313)


def batch_spec(model: Any, data: Any | None) -> Callable[[int], Any]:
    """What a batch of this model looks like, as a function of its size.

    Args:
        model: A Keras model; without `data`, a built and compiled one.
        data: An example batch `x`, `(x, y)` or `(x, y, sample_weight)` of arrays, tensors or specs, a
            `tf.data.Dataset` or `keras.utils.PyDataset` (of which one batch is read where shapes are unknown), or
            `None` to take the model's inputs and derive the targets from its outputs and loss.

    Raises:
        InputError: If neither the data nor the model says what a batch looks like.
    """
    tf = tensorflow()
    if data is None:
        structure = (_input_specs(model), _target_specs(model))
    else:
        structure = _filled(model, _without_nothing(example_specs(data, as_fit_casts=True)))

    def at(size: int) -> Any:
        return tf.nest.map_structure(lambda spec: tf.TensorSpec([size, *spec.shape[1:]], spec.dtype), structure)

    return at


def tracing_size(variables: Iterable[Any], specs: Any) -> int:
    """A batch size that divides no other dimension, so that the batch can be told apart.

    Args:
        variables: The variables of the step.
        specs: A batch of any size.
    """
    dimensions = {size for variable in variables for size in variable.shape}
    for spec in tensorflow().nest.flatten(specs):
        dimensions.update(size for size in spec.shape[1:] if size)
    for prime in _PRIMES:
        if all(size % prime for size in dimensions):
            return prime
    return _PRIMES[0]


def _input_specs(model: Any) -> Any:
    tf = tensorflow()
    # A Sequential model keeps its inputs in the Functional model inside it.
    structure = getattr(getattr(model, "_functional", None) or model, "_inputs_struct", None)
    if structure is None:
        raise InputError(
            f"{model.name!r} is a subclassed model, which does not say what its inputs are. "
            "Pass an example batch: memfit.estimate(model, batch_size=..., data=(x, y))."
        )

    def spec(tensor: Any) -> Any:
        if None in tensor.shape[1:]:
            raise InputError(
                f"input {tensor.name!r} of {model.name!r} has unknown sizes {tuple(tensor.shape)}. "
                "Build the model with a fixed input shape, or pass an example batch as data=(x, y)."
            )
        return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)

    return tf.nest.map_structure(spec, structure)


def _target_specs(model: Any) -> Any:
    tf = tensorflow()
    losses = _losses(model)

    def spec(position: int, output: Any) -> Any:
        loss = losses[min(position, len(losses) - 1)] if losses else None
        if _is_sparse(loss):
            return tf.TensorSpec(output.shape[:-1], "int32")
        return tf.TensorSpec(output.shape, "float32")

    outputs = tf.nest.flatten(model.outputs)
    flat = [spec(position, output) for position, output in enumerate(outputs)]
    structure = getattr(getattr(model, "_functional", None) or model, "_outputs_struct", model.outputs)
    return tf.nest.pack_sequence_as(structure, flat)


def _losses(model: Any) -> list[Any]:
    configured = getattr(model._compile_loss, "_user_loss", None) if model._compile_loss else None
    return list(tensorflow().nest.flatten(configured)) if configured is not None else []


def _is_sparse(loss: Any) -> bool:
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "") or ""
    return "sparse" in str(name).lower() or isinstance(loss, keras().losses.SparseCategoricalCrossentropy)


def _without_nothing(structure: Any) -> Any:
    """Targets and weights that are `None` left out, as Keras does."""
    if isinstance(structure, list):
        structure = tuple(structure)
    if isinstance(structure, tuple) and not hasattr(structure, "_fields"):
        while structure and structure[-1] is None:
            structure = structure[:-1]
    if any(spec is None for spec in tensorflow().nest.flatten(structure)):
        raise InputError("data has None among its arrays. Leave it out, or pass an array of its shape.")
    return structure


def _filled(model: Any, structure: Any) -> Any:
    """Sizes that the data leave unknown, taken from the model's inputs and outputs."""
    tf = tensorflow()
    parts = list(structure) if isinstance(structure, tuple) else [structure]
    own = [getattr(model, "inputs", None), getattr(model, "outputs", None)] if model.built else []
    for number, part in enumerate(parts):
        specs = tf.nest.flatten(part)
        known = tf.nest.flatten(own[number]) if number < len(own) and own[number] else []
        matching = known if len(known) == len(specs) else [None] * len(specs)
        sized = [_sized(spec, tensor) for spec, tensor in zip(specs, matching, strict=True)]
        parts[number] = tf.nest.pack_sequence_as(part, sized)
    return tuple(parts) if isinstance(structure, tuple) else parts[0]


def _sized(spec: Any, tensor: Any | None) -> Any:
    shape = None if spec.shape.rank is None else list(spec.shape)
    if tensor is not None and (shape is None or len(shape) == len(tensor.shape)):
        known = list(tensor.shape)
        shape = known if shape is None else [size or other for size, other in zip(shape, known, strict=True)]
    if not shape:
        what = "unknown shape" if shape is None else "no dimensions"
        raise InputError(
            f"data must hold arrays whose first dimension is the batch; got one of {what} ({spec.dtype.name})."
        )
    if None in shape[1:]:
        raise InputError(
            f"data has unknown sizes: {tuple(shape)}. Pass one batch of real arrays, or give every dimension but the "
            "first a size: the memory of a step follows from it."
        )
    return tensorflow().TensorSpec([None, *shape[1:]], spec.dtype)
