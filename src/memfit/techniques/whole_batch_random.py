"""A slice's rows of the random numbers that the whole batch would draw.

Keras draws with a seed and a shape whose first dimension is the batch's. Drawn for a slice, the numbers would be others
than the ones these samples have in the whole batch: so the whole batch's are drawn and the slice's rows are taken.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memfit.framework import tensorflow

_DRAWING = {
    "stateless_random_uniform": "stateless_uniform",
    "stateless_random_normal": "stateless_normal",
    "stateless_truncated_normal": "stateless_truncated_normal",
}
# Philox makes four 32-bit numbers of each value of its counter, in the order of the elements (philox_random.h).
_NUMBERS_PER_COUNT = 4


@contextmanager
def whole_batch_random(count: Any, start: Any, size: int, *, jit: bool) -> Iterator[None]:
    """Make what is drawn in here the rows of a slice.

    Args:
        count: How many samples the whole batch has.
        start: The first row of the slice, a multiple of `size`.
        size: How many rows a slice has; the last may have fewer.
        jit: Whether XLA compiles it, which may draw with another algorithm.
    """
    module, public = import_module("tensorflow.python.ops.stateless_random_ops"), tensorflow().random
    originals = {name: getattr(module, name) for name in _DRAWING}

    def rows_of(original: Callable[..., Any]) -> Callable[..., Any]:
        def draw(shape: Any, seed: Any, *args: Any, **kwargs: Any) -> Any:
            dimensions = _dimensions(shape)
            if not dimensions or isinstance(dimensions[0], int):
                return original(shape, seed, *args, **kwargs)
            rows, *rest = dimensions
            per_row = math.prod(rest) if all(isinstance(each, int) for each in rest) else None
            plain = original is originals["stateless_random_uniform"] and not args and {*kwargs} <= {"dtype", "alg"}
            single = tensorflow().as_dtype(kwargs.get("dtype", "float32")) == tensorflow().float32
            aligned = per_row is not None and per_row * size % _NUMBERS_PER_COUNT == 0
            if plain and single and aligned and not jit:
                return _uniform_from(dimensions, seed, start * per_row)
            whole = original([count, *rest], seed, *args, **kwargs)
            return tensorflow().slice(whole, [start, *[0] * len(rest)], [rows, *rest])

        return draw

    for name, alias in _DRAWING.items():
        replaced = rows_of(originals[name])
        setattr(module, name, replaced)
        setattr(public, alias, replaced)
    try:
        yield
    finally:
        for name, alias in _DRAWING.items():
            setattr(module, name, originals[name])
            setattr(public, alias, originals[name])


def _dimensions(shape: Any) -> list[Any]:
    """Each dimension as a number, or as a tensor where it is not known until the step runs."""
    tf = tensorflow()
    if tf.is_tensor(shape):
        known = import_module("tensorflow.python.framework.tensor_util").constant_value_as_shape(shape)
        if known.rank is None:
            return []
        return [shape[at] if each is None else each for at, each in enumerate(known.as_list())]
    found = []
    for each in shape:
        value = tf.get_static_value(each) if tf.is_tensor(each) else each
        found.append(each if value is None else int(value))
    return found


def _uniform_from(shape: list[Any], seed: Any, position: Any) -> Any:
    """Uniform numbers as they stand at a position of the seed's sequence, without drawing the ones before."""
    tf, raw = tensorflow(), tensorflow().raw_ops
    found = raw.StatelessRandomGetKeyCounter(seed=seed)
    counts = tf.cast(position // _NUMBERS_PER_COUNT, tf.uint64)
    counter = found.counter + tf.stack([counts, tf.zeros_like(counts)])
    return raw.StatelessRandomUniformV2(
        shape=tf.stack(shape), key=found.key, counter=counter, alg=raw.StatelessRandomGetAlg(), dtype=tf.float32
    )
