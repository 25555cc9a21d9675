"""A slice's rows of the random numbers that the whole batch would draw.

Keras draws with a seed and a shape with the batch in it. Drawn for a slice, the numbers would be others than the ones
these samples have in the whole batch: so the whole batch's are drawn and the slice's rows are taken. Where a
distribution has parameters per sample, other samples get a placeholder: each number depends on its own position only.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from memfit.compat.patching import patched
from memfit.framework import tensorflow
from memfit.techniques.rehearsal import Rehearsal

# Functions of tensorflow.python.ops.stateless_random_ops, their names in tf.random, and their parameters that may have
# the shape of what is drawn.
_DRAWING: dict[str, tuple[str, tuple[str, ...]]] = {
    "stateless_random_uniform": ("stateless_uniform", ("minval", "maxval")),
    "stateless_random_normal": ("stateless_normal", ("mean", "stddev")),
    "stateless_truncated_normal": ("stateless_truncated_normal", ("mean", "stddev")),
    "stateless_random_gamma": ("stateless_gamma", ("alpha", "beta")),
    "stateless_random_binomial": ("stateless_binomial", ("counts", "probs")),
    "stateless_random_poisson": ("stateless_poisson", ("lam",)),
}
_CATEGORICAL = "stateless_categorical"
# Philox makes four 32-bit numbers of each value of its counter, in the order of the elements (philox_random.h).
_NUMBERS_PER_COUNT = 4


@dataclass(frozen=True)
class Rows:
    """Where a slice is in its batch; numbers or tensors."""

    count: Any
    """Samples in the whole batch."""
    start: Any
    """First row of the slice, a multiple of `size`."""
    rows: Any
    """Rows of the slice."""
    size: int
    """Rows of every slice but the last."""


@contextmanager
def whole_batch_random(place: Rows, rehearsal: Rehearsal, *, jit: bool) -> Iterator[None]:
    """Make what is drawn in here the rows of a slice.

    Args:
        place: The slice.
        rehearsal: Tells which dimension of a draw is the batch's, where that cannot be seen.
        jit: Whether XLA compiles it, which may draw with another algorithm.
    """
    module, public = import_module("tensorflow.python.ops.stateless_random_ops"), tensorflow().random
    with ExitStack() as stack:
        for name, (alias, parameters) in _DRAWING.items():
            draw = _Draw(name, parameters, place, rehearsal, jit)
            stack.enter_context(patched(module, name, draw.instead_of))
            stack.enter_context(patched(public, alias, draw.instead_of))
        for owner in (module, public):
            stack.enter_context(patched(owner, _CATEGORICAL, _categorical(place)))
        yield


@dataclass(frozen=True)
class _Draw:
    """One function that draws."""

    name: str
    parameters: tuple[str, ...]
    place: Rows
    rehearsal: Rehearsal
    jit: bool

    def instead_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def draw(*args: Any, **kwargs: Any) -> Any:
            given = dict(signature.bind(*args, **kwargs).arguments)
            dimensions = _dimensions(given["shape"])
            axis = self.rehearsal.axis_of_draw(dimensions)
            if axis is None:
                return original(**given)
            return self._rows(original, given, dimensions, axis)

        return draw

    def _rows(self, original: Callable[..., Any], given: dict[str, Any], dimensions: list[Any], axis: int) -> Any:
        tf, place = tensorflow(), self.place
        # A dimension may hold several entries of each sample, such as the tokens of all sequences.
        factor = dimensions[axis] // place.rows
        start = place.start * factor
        behind = dimensions[axis + 1 :]
        if axis == 0 and self._counts_on(given) and all(isinstance(each, int) for each in behind):
            per_row = math.prod(behind)
            if per_row * place.size % _NUMBERS_PER_COUNT == 0:
                return _uniform_from(dimensions, given["seed"], start * per_row)
        whole = [*dimensions[:axis], place.count * factor, *behind]
        for name in self.parameters:
            if tf.is_tensor(given.get(name)):
                given[name] = _for_all_samples(given[name], whole, axis, start)
        drawn = original(**{**given, "shape": tf.stack(whole)})
        return tf.slice(drawn, tf.stack([start if at == axis else 0 for at in range(len(whole))]), tf.stack(dimensions))

    def _counts_on(self, given: dict[str, Any]) -> bool:
        """Whether numbers in the middle of the sequence can be had without the ones before."""
        plain = self.name == "stateless_random_uniform" and {*given} <= {"shape", "seed", "dtype", "alg"}
        single = tensorflow().as_dtype(given.get("dtype", "float32")) == tensorflow().float32
        return plain and single and not self.jit


def _categorical(place: Rows) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def instead_of(original: Callable[..., Any]) -> Callable[..., Any]:
        def draw(logits: Any, num_samples: Any, seed: Any, *args: Any, **kwargs: Any) -> Any:
            tf = tensorflow()
            logits = tf.convert_to_tensor(logits)
            if logits.shape[0] is not None:
                return original(logits, num_samples, seed, *args, **kwargs)
            rows = tf.shape(logits)[0]
            factor = rows // place.rows
            whole = [place.count * factor, tf.shape(logits)[1]]
            drawn = original(_placed(logits, whole, 0, place.start * factor), num_samples, seed, *args, **kwargs)
            return tf.slice(drawn, [place.start * factor, 0], [rows, -1])

        return draw

    return instead_of


def _for_all_samples(value: Any, whole: list[Any], axis: int, start: Any) -> Any:
    """A parameter with the batch's number of samples, if it has one value per sample."""
    tf = tensorflow()
    own = axis - (len(whole) - value.shape.rank) if value.shape.rank is not None else -1
    if own < 0 or value.shape[own] is not None:
        return value
    target = [whole[axis] if at == own else tf.shape(value)[at] for at in range(value.shape.rank)]
    return _placed(value, target, own, start)


def _placed(value: Any, target: list[Any], axis: int, start: Any) -> Any:
    """A slice's values where they are in the batch, with ones around."""
    tf = tensorflow()
    behind = target[axis] - start - tf.shape(value)[axis]
    paddings = [[start, behind] if at == axis else [0, 0] for at in range(len(target))]
    return tf.pad(value, tf.stack([tf.stack(each) for each in paddings]), constant_values=tf.ones((), value.dtype))


def _dimensions(shape: Any) -> list[Any]:
    """Each dimension as a number, or as a tensor where it is not known until the step runs."""
    tf = tensorflow()
    if tf.is_tensor(shape):
        known = import_module("tensorflow.python.framework.tensor_util").constant_value_as_shape(shape)
        if known.rank is None:
            return []
        return [tf.cast(shape[at], tf.int32) if each is None else each for at, each in enumerate(known.as_list())]
    found = []
    for each in shape:
        value = tf.get_static_value(each) if tf.is_tensor(each) else each
        found.append(tf.cast(each, tf.int32) if value is None else int(value))
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
