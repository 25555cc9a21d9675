"""Random numbers that depend on the sample and the epoch alone, whichever thread draws them and when."""

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import Any

from memfit.framework import keras, tensorflow
from memfit.random_state import random_state, random_state_kept

# TensorFlow's stateful functions, where they live, what they are called in public, and what draws the same by a seed.
_DRAWING = {
    "random_uniform": ("uniform", "stateless_uniform"),
    "random_normal": ("normal", "stateless_normal"),
    "truncated_normal": ("truncated_normal", "stateless_truncated_normal"),
    "random_shuffle": ("shuffle", "experimental.stateless_shuffle"),
}
_ONE_AT_A_TIME = Lock()


@contextmanager
def drawn_from(seed: Any) -> Iterator[None]:
    """Make what TensorFlow and Keras draw while this is traced come from a seed of two numbers."""
    tf, module = tensorflow(), import_module("tensorflow.python.ops.random_ops")
    generator = keras().random.SeedGenerator
    drawn = 0

    def next_seed() -> Any:
        nonlocal drawn
        drawn += 1
        return tf.random.experimental.stateless_fold_in(seed, drawn)

    def stateless(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        draw: Any = tf.random
        for part in name.split("."):
            draw = getattr(draw, part)
        signature = inspect.signature(original)

        def call(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            return draw(seed=next_seed(), **{key: each for key, each in given.items() if key not in ("seed", "name")})

        return call

    replaced: list[tuple[Any, str, Any]] = [(generator, "next", lambda *_, **__: tf.cast(next_seed(), tf.int32))]
    for name, (public, without_state) in _DRAWING.items():
        call = stateless(getattr(module, name), without_state)
        replaced += [(module, name, call), (tf.random, public, call)]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)


@contextmanager
def python_seeded(seed: tuple[int, ...]) -> Iterator[None]:
    """Seed `random` and `numpy.random` for one call, then put them back; one at a time, they are the process's."""
    import numpy as np

    with _ONE_AT_A_TIME, random_state_kept():
        random.seed(repr(seed))
        np.random.seed([part & 0xFFFFFFFF for part in seed])
        yield


@contextmanager
def left_alone() -> Iterator[Callable[[], bool]]:
    """Put `random` and `numpy.random` back in the end; what it gives tells whether somebody has drawn from them."""
    with _ONE_AT_A_TIME, random_state_kept():
        before = repr(random_state())
        yield lambda: repr(random_state()) != before
