"""The user's augmentation: what kind of function it is, what it is called with, and how it is run on a batch.

TensorFlow and Keras code is traced into the pipeline. Anything else (NumPy, Albumentations) runs in a bounded pool of
threads, a batch at a time and in order. Either way a sample's random numbers depend on seed, epoch and sample alone.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memfit.data import python_pool
from memfit.data.graph import as_written
from memfit.data.randomness import drawn_from, left_alone
from memfit.errors import InputError
from memfit.framework import keras, tensorflow

# Traced this often: a branch that Python takes at random would come out the same each time in one of 128 cases.
_TRACES = 8
_STATEFUL = ("Random", "StatefulUniform", "StatefulStandardNormal", "RngRead", "Multinomial")
_ROUND = "tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)"


@dataclass(frozen=True)
class Augmentation:
    """A function and how to call it."""

    function: Callable[..., Any]
    name: str
    kind: Literal["tensorflow", "python"]
    arguments: int
    """How many of a sample's parts it takes: the image, or also its mask or label."""
    random: Literal["seed", "rng"] | None
    """The name under which it takes its randomness, if it does."""
    named: bool
    """Albumentations' way: `function(image=..., mask=...)["image"]`."""
    seeded: bool

    def on_batch(self, parts: Sequence[Any], seeds: Any, names: Any, parallel: int) -> tuple[Any, ...]:
        """Run it on every sample of a batch, in a graph."""
        run = _traced if self.kind == "tensorflow" else python_pool.on_batch
        return (*run(self, parts[: self.arguments], seeds, names, parallel), *parts[self.arguments :])


def understood(function: Callable[..., Any], example: Sequence[Any], *, seed: int | None, pairs: bool) -> Augmentation:
    """Find out how to call an augmentation, and try it on one sample.

    Args:
        function: What the user gave.
        example: One sample's image, and its mask or label, as arrays.
        seed: The user's seed; without one nothing needs to be reproducible.
        pairs: Whether the second part is a mask.

    Raises:
        InputError: If it fails, changes shape or dtype, or draws random numbers that a seed does not reach.
    """
    name = getattr(function, "__name__", None) or getattr(function, "name", None) or type(function).__name__
    if not callable(function):
        raise InputError(f"augment={function!r} is not a function; expected one that takes an image and returns it.")
    arguments, random, named = _signature(function, name, parts=len(example), pairs=pairs)
    wanted = Augmentation(function, str(name), "tensorflow", arguments, random, named, seed is not None)
    python = Augmentation(function, str(name), "python", arguments, random, named, seed is not None)
    if named or random == "rng":
        return _tried_in_python(python, example)
    try:
        graphs = _graphs(wanted, example)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever stops the tracing: it is no TensorFlow code, or it is broken
        return _tried_in_python(python, example, tracing=error)
    if graphs is None:
        return _tried_in_python(python, example)
    if seed is not None:
        _refuse_stateful(wanted, graphs)
    return wanted


def check(augmentation: Augmentation, given: Sequence[Any], returned: Sequence[Any]) -> None:
    """Refuse a result of another shape or dtype; parts have `shape` and `dtype`."""
    if len(given) != len(returned):
        raise InputError(
            f"augment {augmentation.name!r} takes {len(given)} parts of a sample and returns {len(returned)}. "
            "Return as many, in the same order."
        )
    for before, after in zip(given, returned, strict=True):
        if before.dtype != after.dtype or not _compatible(tuple(before.shape), tuple(after.shape)):
            raise InputError(
                f"augment {augmentation.name!r} makes {_kind(after)} of {_kind(before)}. It must keep shape and dtype: "
                f"set the size with image_size, and end with {_ROUND} where it computes in floats."
            )


def _signature(
    function: Callable[..., Any], name: str, *, parts: int, pairs: bool
) -> tuple[int, Literal["seed", "rng"] | None, bool]:
    """How many parts it takes, the name of its randomness, and whether it takes them by name."""
    if isinstance(function, keras().layers.Layer):
        return 1, None, False
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 1, None, False
    if hasattr(function, "transforms") and any(each.kind is each.VAR_KEYWORD for each in parameters):
        return (2 if pairs else 1), None, True
    asked = [each.name for each in parameters if each.default is each.empty and each.kind <= each.POSITIONAL_OR_KEYWORD]
    random: Literal["seed", "rng"] | None = None
    for each in parameters:
        if each.name == "seed" or each.name == "rng":
            random = "seed" if each.name == "seed" else "rng"
    arguments = len([each for each in asked if each not in ("seed", "rng")]) or 1
    if arguments > min(parts, 2):
        second = "mask" if pairs else "label"
        raise InputError(
            f"augment {name!r} asks for {', '.join(asked)}; it is called with the image, then its {second} if it takes "
            "two, and `seed` (TensorFlow) or `rng` (NumPy) if it has an argument of that name."
        )
    return arguments, random, False


def _traced(augmentation: Augmentation, parts: Sequence[Any], seeds: Any, names: Any, parallel: int) -> tuple[Any, ...]:
    """Each sample by itself, several at a time, put together in order."""
    del names
    tf = tensorflow()
    count = tf.shape(seeds, tf.int64)[0]
    samples = tf.data.Dataset.from_tensor_slices((tuple(parts), seeds))
    done = samples.map(
        as_written(lambda each, seed: _one(augmentation, each, seed)), num_parallel_calls=parallel, deterministic=True
    )
    return tuple(done.batch(count).get_single_element())


def _one(augmentation: Augmentation, parts: Sequence[Any], seed: Any) -> tuple[Any, ...]:
    """One sample, in a graph."""
    tf, function = tensorflow(), augmentation.function
    with drawn_from(seed):
        if isinstance(function, keras().layers.Layer):
            # A layer computes in floats and returns them.
            image = tf.clip_by_value(tf.round(function(parts[0], training=True)), 0, 255)
            result: Any = tf.cast(image, parts[0].dtype)
        else:
            random = {"seed": seed} if augmentation.random else {}
            # A function of its own, so that the user's `if` and `for` on tensors are understood.
            result = tf.function(function)(*parts, **random)
    results = tuple(result) if isinstance(result, tuple | list) else (result,)
    results = tuple(tf.convert_to_tensor(each) for each in results)
    check(augmentation, parts, results)
    return tuple(tf.ensure_shape(after, before.shape) for before, after in zip(parts, results, strict=True))


def _graphs(augmentation: Augmentation, example: Sequence[Any]) -> list[Any] | None:
    """The function traced several times; `None` where Python decides something anew in each."""
    tf = tensorflow()
    specs = [tf.TensorSpec(part.shape, part.dtype) for part in example[: augmentation.arguments]]
    found: list[Any] = []

    def trace() -> None:
        traced = tf.function(as_written(lambda seed, *parts: _one(augmentation, parts, seed)))
        found.append(traced.get_concrete_function(tf.TensorSpec([2], tf.int64), *specs).graph.as_graph_def())

    with left_alone() as drawn_from_python:
        # Layers of Keras draw through TensorFlow.
        for _ in range(1 if isinstance(augmentation.function, keras().layers.Layer) else _TRACES):
            trace()
            # A traced function would draw such a number once, and never again.
            if drawn_from_python() or _computed(found[-1]) != _computed(found[0]):
                return None
    return found


def _nodes(graph: Any) -> list[Any]:
    """The operations of a graph and of the functions it calls."""
    return [*graph.node, *[node for function in graph.library.function for node in function.node_def]]


def _computed(graph: Any) -> list[tuple[str, bytes]]:
    """What a graph computes, whatever its parts are called and in which order they are kept."""
    return sorted(
        (node.op, node.attr["value"].SerializeToString() if node.op == "Const" else b"") for node in _nodes(graph)
    )


def _refuse_stateful(augmentation: Augmentation, graphs: Sequence[Any]) -> None:
    for node in _nodes(graphs[0]):
        if node.op.startswith(_STATEFUL) and node.op != "RandomIndexShuffle":
            raise InputError(
                f"augment {augmentation.name!r} draws random numbers ({node.op}) that seed= does not reach. Give it an "
                "argument named `seed` and use tf.image.stateless_random_* or tf.random.stateless_*, or pass seed=None."
            )


def _tried_in_python(
    augmentation: Augmentation, example: Sequence[Any], tracing: Exception | None = None
) -> Augmentation:
    parts = example[: augmentation.arguments]
    try:
        returned = python_pool.call(augmentation, parts, (0, 0))
    except Exception as error:
        also = "" if tracing is None else f" (and when traced by TensorFlow: {_short(tracing)})"
        raise InputError(
            f"augment {augmentation.name!r} fails on an image of {_kind(example[0])}: {_short(error)}{also}. "
            "It is given one uint8 image at a time and must return it."
        ) from error
    check(augmentation, parts, returned)
    return augmentation


def _compatible(before: tuple[int, ...], after: tuple[int | None, ...]) -> bool:
    return len(before) == len(after) and all(
        mine is None or mine == other for mine, other in zip(after, before, strict=True)
    )


def _kind(part: Any) -> str:
    return f"{getattr(part.dtype, 'name', part.dtype)} of shape {tuple(part.shape)}"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
