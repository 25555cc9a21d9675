"""The example arguments of a training step: which of their dimensions are the batch, and the same for other sizes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memfit.errors import InputError
from memfit.framework import tensorflow
from memfit.trace.example import example_specs


@dataclass(frozen=True)
class Arguments:
    """What a step is called with, as specs."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    example_size: int | None
    """The batch size of the example; `None` where its specs leave it open."""

    def at(self, size: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments with a batch of this size; what has no batch dimension stays as it is."""
        tf = tensorflow()

        def sized(spec: Any) -> Any:
            if not self._has_batch(spec):
                return spec
            return tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)

        arguments: tuple[tuple[Any, ...], dict[str, Any]] = tf.nest.map_structure(sized, (self.positional, self.named))
        return arguments

    def _has_batch(self, spec: Any) -> bool:
        return spec is not None and len(spec.shape) > 0 and spec.shape[0] == self.example_size


def read_arguments(function: Callable[..., Any], name: str, data: Any, signature: Any | None) -> Arguments:
    """Match example arguments to a function.

    Args:
        function: The Python function.
        name: What to call it in an error.
        data: The arguments: a tuple of all of them, a dictionary by their names, or the only one. A
            `tf.data.Dataset` gives the arguments of one step.
        signature: The `input_signature` of the `tf.function`, whose types are used.

    Raises:
        InputError: If they do not match, one of them is not a tensor, or none has a batch dimension.
    """
    if data is None and signature is None:
        raise InputError(
            f"{name!r} is a function, which does not say what it is called with. "
            f"Pass example arguments: memfit.estimate({name}, batch_size=..., data=(x, y))."
        )
    specs = _plain(signature) if data is None else example_specs(_refuse_others(data, name), as_fit_casts=False)
    positional, named = _bound(function, name, specs)
    if signature is not None and data is not None:
        positional = _with_types(positional, signature, name)
    leaves = [spec for spec in tensorflow().nest.flatten((positional, named)) if spec is not None]
    for spec in leaves:
        if spec.shape.rank is None or None in spec.shape[1:]:
            raise InputError(
                f"an argument of {name!r} has unknown sizes: {spec.shape}. Pass real tensors of one batch as data=, or "
                "give every dimension but the first a size."
            )
    batched = [spec for spec in leaves if spec.shape.rank]
    if not batched:
        raise InputError(f"no argument of {name!r} has a batch dimension. Pass one batch, such as data=(x, y).")
    size = None if any(spec.shape[0] is None for spec in batched) else batched[0].shape[0]
    return Arguments(positional, named, size)


def _plain(signature: Any) -> Any:
    tf = tensorflow()
    return tf.nest.map_structure(lambda spec: tf.TensorSpec(spec.shape, spec.dtype), tuple(signature))


def _refuse_others(data: Any, name: str) -> Any:
    """Say which argument is not a tensor; the same when everything is one."""
    tf = tensorflow()
    if isinstance(data, tf.data.Dataset):
        return data
    top = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, tuple | list) else [(0, data)]
    for position, value in top:
        which = f"argument {position!r}" if isinstance(position, str) else f"argument {position + 1}"
        if isinstance(value, bool | int | float | str):
            raise InputError(
                f"{which} of {name!r} is {value!r}, a Python {type(value).__name__}, which a tf.function makes a part "
                f"of the graph. Pass a tensor, tf.constant({value!r}), or bind it: functools.partial({name}, ...)."
            )
        for leaf in tf.nest.flatten(value):
            if leaf is not None and not hasattr(leaf, "shape") and not isinstance(leaf, int | float):
                kind = "a tf.data.Dataset" if isinstance(leaf, tf.data.Dataset) else f"a {type(leaf).__name__}"
                raise InputError(
                    f"{which} of {name!r} is {kind}, not a tensor. "
                    "Pass the function of one step, and as data= the tensors it is called with."
                )
    return data


def _bound(function: Callable[..., Any], name: str, specs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The specs as positional and named arguments of a call that the function accepts."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((specs,), {})]
    if isinstance(specs, tuple | list):
        calls.insert(0, (tuple(specs), {}))
    elif isinstance(specs, dict):
        calls.insert(0, ((), dict(specs)))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return calls[0]
    for positional, named in calls:
        try:
            signature.bind(*positional, **named)
        except TypeError:
            continue
        return positional, named
    count = len(specs) if isinstance(specs, tuple | list | dict) else 1
    raise InputError(
        f"{name}{signature} cannot be called with the example arguments: data= has {count}. "
        "Pass a tuple of all arguments, or a dictionary by their names."
    )


def _with_types(positional: tuple[Any, ...], signature: Any, name: str) -> tuple[Any, ...]:
    """The arguments in the types of an `input_signature`, to which TensorFlow converts them."""
    tf = tensorflow()
    specs, wanted = tf.nest.flatten(positional), tf.nest.flatten(tuple(signature))
    if len(specs) != len(wanted):
        raise InputError(f"{name!r} has an input_signature of {len(wanted)} tensors, and data= has {len(specs)}.")
    typed = [tf.TensorSpec(spec.shape, each.dtype) for spec, each in zip(specs, wanted, strict=True)]
    converted: tuple[Any, ...] = tf.nest.pack_sequence_as(positional, typed)
    return converted
