"""Augmentations that are not TensorFlow: run by a bounded pool of threads, a batch at a time, in order."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from memfit.data.randomness import python_seeded
from memfit.errors import InputError
from memfit.framework import tensorflow

if TYPE_CHECKING:
    from memfit.data.augment import Augmentation


def on_batch(
    augmentation: "Augmentation", parts: Sequence[Any], seeds: Any, names: Any, parallel: int
) -> tuple[Any, ...]:
    """Run it on every sample of a batch, from a graph."""
    tf = tensorflow()

    def run(seeds: Any, names: Any, *parts: Any) -> list[Any]:
        return _batch(augmentation, parts, seeds, names, parallel)

    done = tf.numpy_function(run, [seeds, names, *parts], [part.dtype for part in parts])
    return tuple(tf.ensure_shape(after, before.shape) for before, after in zip(parts, done, strict=True))


def call(augmentation: "Augmentation", parts: Sequence[Any], seed: tuple[int, ...]) -> tuple[Any, ...]:
    """Run it on one sample."""
    import numpy as np

    function = augmentation.function
    if augmentation.named:
        named = dict(zip(("image", "mask"), parts, strict=False))
        if not augmentation.seeded:
            result: Any = function(**named)
        else:
            with python_seeded(seed):
                # Newer versions of Albumentations have a generator of their own.
                if hasattr(function, "set_random_seed"):
                    function.set_random_seed(hash(seed) & 0xFFFFFFFF)
                result = function(**named)
        return tuple(np.asarray(result[key]) for key in named)
    if augmentation.random == "rng":
        entropy = [part & 0xFFFFFFFFFFFFFFFF for part in seed] if augmentation.seeded else None
        result = function(*parts, rng=np.random.default_rng(entropy))
    else:
        random = {"seed": np.asarray(seed)} if augmentation.random else {}
        if augmentation.seeded and not random:
            with python_seeded(seed):
                result = function(*parts)
        else:
            result = function(*parts, **random)
    return tuple(np.asarray(each) for each in (result if isinstance(result, tuple | list) else (result,)))


def _batch(augmentation: "Augmentation", parts: Sequence[Any], seeds: Any, names: Any, parallel: int) -> list[Any]:
    import numpy as np

    from memfit.data.augment import check

    results = [np.empty_like(part) for part in parts]

    def one(at: int) -> None:
        given = [part[at] for part in parts]
        try:
            returned = call(augmentation, given, tuple(int(part) for part in seeds[at]))
        except Exception as error:
            name = names[at].decode(errors="replace")
            raise InputError(
                f"augment {augmentation.name!r} fails on {name}: {type(error).__name__}: {error}"
            ) from error
        check(augmentation, given, returned)
        for result, each in zip(results, returned, strict=True):
            result[at] = each

    # Threads of one pool for all batches: no more are ever at work.
    list(_pool(parallel).map(one, range(len(seeds))))
    return results


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="memfit-augment")
