"""From files to data sets: a sample is measured, caches are decided, and made where they lie on disk."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from memfit.data import disk
from memfit.data.augment import Augmentation, understood
from memfit.data.deciding import OVERHEAD, decide
from memfit.data.decode import CHANNELS, decoded_shape, picture
from memfit.data.facts import Broken, Layout, Split
from memfit.data.feed import Feed, attach
from memfit.data.graph import as_written
from memfit.data.listing import names, split_indices
from memfit.data.masks import mask
from memfit.data.pipeline import Recipe, contents_of, dataset, decoded, path_rows
from memfit.data.progress import progress
from memfit.data.sampling import SAMPLE, Source, measure
from memfit.data.settings import Material, Settings
from memfit.errors import DataWarning, InputError
from memfit.framework import tensorflow
from memfit.hardware.host import usable_cores

# In the order in which they get their caches: validation is small, and the same in every epoch.
_SPLITS = ("validation", "train")
# A string of Python, its places in lists, and a string of TensorFlow, without their letters.
_PATH_BYTES = 49 + 3 * 8 + 56 + 24


@dataclass(frozen=True)
class Decided:
    """A layout, with what it is about."""

    layout: Layout
    source: Source
    labels: Any
    chosen: dict[str, list[int]]
    augmentation: Augmentation | None


def decided(material: Material, settings: Settings) -> Decided:
    """Measure a sample of the files and decide, without building anything."""
    import numpy as np

    source = _source(material, settings)
    labels = None if material.labels is None else _label_rows(material.labels)
    with progress("looking at a sample of the files", min(SAMPLE, len(material.files))) as step:
        measured, example = measure(source, settings.seed, on_error=settings.on_error, step=lambda: step(1))
    known = {each.path for each in measured.broken}
    good = [index for index, files in enumerate(material.files) if " + ".join(files) not in known]
    train, validation = split_indices(len(good), settings.validation_split, settings.seed)
    chosen = {"train": [good[at] for at in train], "validation": [good[at] for at in validation]}
    augmentation = None
    if settings.augment is not None:
        sample = (*example, *(() if labels is None else (np.asarray(labels[0]),)))
        augmentation = understood(settings.augment, sample, seed=settings.seed, pairs=material.pairs)
    splits = [
        Split(
            name,
            len(chosen[name]),
            settings.batch_size,
            shuffled=name == "train" and settings.shuffle,
            augmented=name == "train" and augmentation is not None,
        )
        for name in _SPLITS
        if chosen[name]
    ]
    layout = decide(
        measured,
        splits,
        settings.ram_budget,
        cores=usable_cores(),
        disk=settings.cache_dir is not None,
        overhead=OVERHEAD + _listing_bytes(material),
    )
    layout = replace(layout, exact=settings.exact, notes=material.notes)
    return Decided(layout, source, labels, chosen, augmentation)


def datasets(material: Material, settings: Settings) -> list[Any]:
    """The data sets: for training, and for validation where a part is held out."""
    found = decided(material, settings)
    _warn(material.notes, (*material.ignored, *found.layout.measured.broken))
    recipes = [_recipe(name, found, settings) for name in reversed(_SPLITS) if found.chosen[name]]
    made = []
    for recipe in recipes:
        built, broken = dataset(recipe)
        built.file_paths = [files[0] for files in recipe.source.files]
        made.append(attach(built, Feed(found.layout, recipe, broken, material.ignored)))
    return made


def _source(material: Material, settings: Settings) -> Source:
    tf, size = tensorflow(), settings.image_size

    def decode(contents: Any) -> tuple[Any, ...]:
        image = picture(contents[0], size, exact=settings.exact)
        return (image, mask(contents[1], size)) if material.pairs else (image,)

    def unpacked(contents: Any) -> Any:
        return tf.reduce_prod(decoded_shape(contents[0], size, exact=settings.exact))

    shapes: tuple[tuple[int, ...], ...] = ((*size, CHANNELS), (*size, 1)) if material.pairs else ((*size, CHANNELS),)
    # Traced once, for the sample and for every pipeline.
    given = [(tf.TensorSpec([], tf.string),) * len(shapes)]
    return Source(
        material.files,
        tf.function(as_written(decode), input_signature=given),
        shapes,
        tf.function(as_written(unpacked), input_signature=given),
    )


def _label_rows(labels: Any) -> Any:
    import numpy as np

    try:
        rows = np.asarray(labels)
    except ValueError:
        rows = np.asarray(None)
    if rows.dtype == object:
        raise InputError("labels differ in shape; expected a number or an array of one shape for each picture.")
    # What Keras gives: 32 bits are enough for class numbers.
    return rows.astype("int32") if rows.dtype == np.int64 else rows


def _recipe(name: str, found: Decided, settings: Settings) -> Recipe:
    training, indices = name == "train", found.chosen[name]
    recipe = Recipe(
        source=replace(found.source, files=tuple(found.source.files[index] for index in indices)),
        labels=None if found.labels is None else found.labels[indices],
        decision=found.layout.of(name),
        ram_budget=settings.ram_budget,
        shuffle=settings.shuffle and training,
        seed=settings.seed,
        augmentation=found.augmentation if training else None,
        skip_broken=settings.on_error == "skip",
    )
    if recipe.decision.cache != "disk" or settings.cache_dir is None:
        return recipe
    return _on_disk(recipe, settings.cache_dir, exact=settings.exact)


def _on_disk(recipe: Recipe, cache_dir: str | os.PathLike[str], *, exact: bool) -> Recipe:
    """The recipe with its samples in a cache on disk, made now where there is none."""
    import numpy as np

    tf, source = tensorflow(), recipe.source
    folder = disk.folder_for(cache_dir, source, (exact,))
    store = disk.opened(folder, source)
    if store is None:
        with tf.device("CPU:0"), progress("filling the cache on disk", len(source.files)) as step:
            read = contents_of(path_rows(recipe))
            size = recipe.decision.split.batch_size
            batches = (
                tf.data.Dataset.range(len(source.files))
                .batch(size)
                .map(as_written(lambda indices: decoded(recipe, indices, lambda index: source.decode(read(index)))))
            )
            store = disk.filled(folder, source, batches.prefetch(1), step=step)
    if not store.broken:
        return replace(recipe, rows=store)
    broken = set(store.broken)
    if not recipe.skip_broken:
        raise InputError(f'cannot read {" + ".join(source.files[min(broken)])}. Remove it, or pass on_error="skip".')
    kept = np.array([index for index in range(len(source.files)) if index not in broken])
    _warn((), [Broken(" + ".join(source.files[index]), "it cannot be read") for index in sorted(broken)])
    return replace(
        recipe,
        source=replace(source, files=tuple(source.files[index] for index in kept)),
        labels=None if recipe.labels is None else recipe.labels[kept],
        rows=_Kept(store, kept),
    )


@dataclass(frozen=True)
class _Kept:
    """A cache without the places of broken files."""

    store: disk.DiskStore
    places: Any

    def read(self, indices: Any) -> tuple[Any, ...]:
        return self.store.read(tensorflow().gather(tensorflow().constant(self.places), indices))


def _warn(notes: Sequence[str], broken: Sequence[Broken]) -> None:
    said = [*notes]
    if broken:
        said.append(f"{len(broken)} files are left out: {names([f'{each.path} ({each.reason})' for each in broken])}")
    if said:
        warnings.warn(f"memfit.data: {'; '.join(said)}.", DataWarning, stacklevel=4)


def _listing_bytes(material: Material) -> int:
    """What the paths take: as Python's strings, twice in lists, and as TensorFlow's."""
    return sum(2 * len(path) + _PATH_BYTES for files in material.files for path in files)
