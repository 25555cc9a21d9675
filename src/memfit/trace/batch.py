"""The batch a step is traced with: shapes and types of inputs and targets, without any data."""

from collections.abc import Callable
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow

# Batch sizes to trace with: primes, so that a dimension they divide is the batch's and nothing else's.
_PRIMES = (251, 257, 263, 269, 271, 277, 281, 283, 293, 307, 311, 313)


def batch_spec(model: Any, data: Any | None) -> Callable[[int], Any]:
    """What a batch of this model looks like, as a function of its size.

    Args:
        model: A built, compiled Keras model.
        data: An example batch `(x, y)` or `(x, y, sample_weight)` of arrays, a `tf.data.Dataset`, or `None` to take
            the model's inputs and derive the targets from its outputs and loss.

    Raises:
        InputError: If the model says too little about its inputs.
    """
    tf = tensorflow()
    if data is None:
        structure = (_input_specs(model), _target_specs(model))
    elif isinstance(data, tf.data.Dataset):
        structure = data.element_spec
    else:
        structure = tf.nest.map_structure(_spec_of_array, tuple(data) if isinstance(data, list) else data)

    def at(size: int) -> Any:
        return tf.nest.map_structure(lambda spec: tf.TensorSpec([size, *spec.shape[1:]], spec.dtype), structure)

    return at


def tracing_size(model: Any, spec: Callable[[int], Any]) -> int:
    """A batch size that divides no other dimension of the model, so that the batch can be told apart."""
    tf = tensorflow()
    dimensions = {size for variable in model.variables for size in variable.shape}
    for each in tf.nest.flatten(spec(1)):
        dimensions.update(size for size in each.shape[1:] if size)
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


def _spec_of_array(array: Any) -> Any:
    tf = tensorflow()
    if isinstance(array, tf.TensorSpec):
        return array
    if not hasattr(array, "shape") or not array.shape:
        raise InputError(f"data must hold arrays whose first dimension is the batch; got {type(array).__name__}.")
    return tf.TensorSpec([None, *array.shape[1:]], array.dtype)
