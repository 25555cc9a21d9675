"""One split as a `tf.data.Dataset`: numbers in order, batches of them loaded, augmented and prefetched, all on the CPU.

A batch is made in one piece: its files are decoded side by side by an inner data set that leaves broken ones out. So an
epoch has as many batches as was said, a broken file makes its batch smaller, and no more than `parallel_batches` are in
the making.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from memfit.data import order
from memfit.data.augment import Augmentation
from memfit.data.broken import BrokenFiles
from memfit.data.facts import Decision
from memfit.data.graph import as_written
from memfit.data.sampling import Source
from memfit.data.store import DecodedStore, EncodedStore
from memfit.framework import tensorflow


class Rows(Protocol):
    """A store that holds every sample."""

    def read(self, indices: Any) -> tuple[Any, ...]:
        """The samples of these numbers, in a graph."""


@dataclass(frozen=True)
class Recipe:
    """All that one split's pipeline is made of, so that it can also be made elsewhere."""

    source: Source
    labels: Any
    """An array with a row for each sample, or `None`."""
    decision: Decision
    ram_budget: int
    shuffle: bool
    seed: int | None
    augmentation: Augmentation | None
    skip_broken: bool
    rows: Rows | None = None
    """The cache on disk, where there is one."""


def dataset(recipe: Recipe) -> tuple[Any, BrokenFiles]:
    """Build the pipeline of one split, with caches in this process."""
    tf, decision = tensorflow(), recipe.decision
    with tf.device("CPU:0"):
        paths = path_rows(recipe)
        broken = BrokenFiles(paths, skip=recipe.skip_broken)
        finish = finisher(recipe, paths)
        load = _loader(recipe, paths, broken)
        count, size = len(recipe.source.files), decision.split.batch_size
        numbers = order.batches(count, size, recipe.seed, shuffle=recipe.shuffle)
        batches = numbers.map(
            as_written(lambda indices, key: finish(*load(indices), key)),
            num_parallel_calls=decision.parallel_batches,
            deterministic=True,
        )
        return with_options(batches.prefetch(decision.prefetch), recipe.ram_budget), broken


def with_options(dataset: Any, ram_budget: int) -> Any:
    """Have tf.data's own autotuner keep to the budget, also in what is added later."""
    options = tensorflow().data.Options()
    options.autotune.ram_budget = ram_budget
    # It starts with 16 of everything otherwise, before it knows what they take (options.py).
    options.autotune.initial_parallelism = 1
    return dataset.with_options(options)


def decoded(recipe: Recipe, indices: Any, sample: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
    """Load these samples side by side; the numbers of those that could be read, and their parts, in order."""
    tf = tensorflow()
    inner = tf.data.Dataset.from_tensor_slices(indices).map(
        as_written(lambda index: (index, sample(index))),
        num_parallel_calls=recipe.decision.parallel_decodes,
        deterministic=True,
    )
    batch = inner.ignore_errors().batch(recipe.decision.split.batch_size)
    nothing = (
        tf.zeros([0], tf.int64),
        tuple(tf.zeros([0, *shape], tf.uint8) for shape in recipe.source.shapes),
    )
    # Where every file is broken, a batch of none comes instead of an error that names nothing.
    came, parts = batch.concatenate(tf.data.Dataset.from_tensors(nothing)).take(1).get_single_element()
    return came, parts


def path_rows(recipe: Recipe) -> Any:
    """The paths as one tensor, a row for each sample: a million of them take a hundred megabytes, so there is one."""
    return tensorflow().constant([list(files) for files in recipe.source.files])


def contents_of(paths: Any) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads the files of one sample, in a graph."""
    tf = tensorflow()
    return lambda index: tuple(tf.io.read_file(path) for path in tf.unstack(tf.gather(paths, index)))


def finisher(recipe: Recipe, paths: Any) -> Callable[[Any, tuple[Any, ...], Any], Any]:
    """A function that puts labels to parts and augments them: `(indices, parts, key)` to what a model is fed."""
    tf, augmentation = tensorflow(), recipe.augmentation
    labels = None if recipe.labels is None else tf.constant(recipe.labels)

    def finish(indices: Any, parts: tuple[Any, ...], key: Any) -> Any:
        parts = tuple(
            tf.ensure_shape(part, (None, *shape)) for part, shape in zip(parts, recipe.source.shapes, strict=True)
        )
        fed = parts if labels is None else (*parts, tf.gather(labels, indices))
        if augmentation is not None:
            seeds = order.sample_seeds(key, indices)
            named = tf.gather(paths, indices)[:, 0]
            fed = augmentation.on_batch(fed, seeds, named, recipe.decision.parallel_decodes)
        return fed if len(fed) > 1 else fed[0]

    return finish


def _loader(recipe: Recipe, paths: Any, broken: BrokenFiles) -> Callable[[Any], tuple[Any, tuple[Any, ...]]]:
    """A function that gets a batch from a cache or from files: `indices` to those that came, and their parts."""
    tf, decision, source = tensorflow(), recipe.decision, recipe.source
    rows = recipe.rows
    if rows is not None:
        return lambda indices: (indices, rows.read(indices))
    read = contents_of(paths)
    if decision.cache == "encoded":
        encoded = EncodedStore(len(source.files), len(source.shapes), decision.cache_bytes)

        def sample(index: Any) -> tuple[Any, ...]:
            return source.decode(encoded.through(index, lambda: read(index)))

    elif decision.cache == "decoded":
        store = DecodedStore(decision.cached_samples, source.shapes)
        holds_everything = decision.cached_samples >= len(source.files)

        def sample(index: Any) -> tuple[Any, ...]:
            if holds_everything:
                # Batches that are here are read as a whole; the first epoch need not ask for each sample.
                return store.kept(index, source.decode(read(index)))
            return store.through(index, lambda: source.decode(read(index)))

    else:

        def sample(index: Any) -> tuple[Any, ...]:
            return source.decode(read(index))

    def from_files(indices: Any) -> tuple[Any, tuple[Any, ...]]:
        came, parts = decoded(recipe, indices, sample)
        return broken.compared(indices, came), parts

    def load(indices: Any) -> tuple[Any, tuple[Any, ...]]:
        indices = broken.usable(indices)
        if decision.cache != "decoded":
            return from_files(indices)
        # A batch that is wholly in the cache is one gather away.
        came, parts = tf.cond(
            store.holds_all(indices), lambda: (indices, store.read(indices)), lambda: from_files(indices)
        )
        return came, parts

    return load
