"""`image_folder` and `images`: pictures on disk to data sets that keep to a RAM budget."""

import os
from collections.abc import Sequence
from typing import Any

from memfit.data.building import datasets
from memfit.data.listing import list_folder
from memfit.data.settings import Augment, Material, OnError, checked
from memfit.errors import InputError
from memfit.units import Size


def image_folder(
    directory: str | os.PathLike[str],
    *,
    image_size: int | tuple[int, int],
    batch_size: int = 32,
    validation_split: float = 0.0,
    ram_budget: Size | None = None,
    augment: Augment | None = None,
    seed: int | None = None,
    shuffle: bool = True,
    exact: bool = False,
    on_error: OnError = "skip",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Any:
    """Make data sets of `(images, labels)` from a folder with one folder of pictures for each class.

    Images are uint8 from 0 to 255, so that a quarter of the bytes cross to the device: let the model begin with
    `keras.layers.Rescaling(1 / 255)`, which casts there. Everything else runs on the CPU.

    Args:
        directory: The folder. Classes are its folders in the order of their names.
        image_size: Height and width, or one number for both. Pictures are resized to it, without keeping proportions.
        batch_size: How many samples a batch has; the last of an epoch may have fewer, and one with a broken file has.
        validation_split: The share of pictures to hold out.
        ram_budget: The host memory that caches and batches may take together; half of what is free by default.
        augment: A function of one uint8 image, or of image and label, that returns the same. TensorFlow code, Keras
            layers, NumPy code and Albumentations all work; it may take its randomness as `seed` or `rng`.
        seed: Same seed: same split, same order in each epoch, same augmentation.
        shuffle: Whether the training part comes in another order each epoch.
        exact: Decode JPEGs in full even where a smaller decode would do.
        on_error: "skip" leaves broken files out and says so; "raise" stops.
        cache_dir: A folder where a cache on disk may be made if the budget does not hold all pictures decoded.

    Returns:
        A `tf.data.Dataset`, or one for training and one for validation. Both have `class_names` and `file_paths`.

    Raises:
        InputError: If there are no pictures, or something cannot be used as it is.
        BudgetTooSmallError: If the budget does not hold one batch on its way.

    Example:
        ```python
        train, val = memfit.data.image_folder(
            "photos/", image_size=224, batch_size=64, validation_split=0.2, ram_budget="4GiB", seed=0
        )
        model.fit(train, validation_data=val, epochs=10)
        memfit.data.explain(train)
        ```
    """
    settings = checked(
        image_size, batch_size, validation_split, ram_budget, augment, seed, shuffle, exact, on_error, cache_dir
    )
    listing = list_folder(directory)
    made = datasets(Material.of_folder(listing), settings)
    for each in made:
        each.class_names = list(listing.class_names)
    return made[0] if len(made) == 1 else tuple(made)


def images(
    paths: Sequence[str | os.PathLike[str]],
    labels: Any = None,
    *,
    image_size: int | tuple[int, int],
    masks: Sequence[str | os.PathLike[str]] | None = None,
    batch_size: int = 32,
    validation_split: float = 0.0,
    ram_budget: Size | None = None,
    augment: Augment | None = None,
    seed: int | None = None,
    shuffle: bool = True,
    exact: bool = False,
    on_error: OnError = "skip",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Any:
    """Make data sets from lists: of `(images, labels)`, of `(images, masks)`, or of images alone.

    Masks hold a class number for each pixel (8 bits, grey or with a palette); they are resized to the nearest one, and
    come as uint8 of shape `(batch, height, width, 1)`. `augment` then takes the image, or image and mask.

    Args:
        paths: The pictures.
        labels: A number or an array for each picture.
        image_size: See `image_folder`, as for all that follows.
        masks: The mask of each picture, for segmentation.
        batch_size: How many samples a batch has.
        validation_split: The share of pictures to hold out.
        ram_budget: The host memory that caches and batches may take together.
        augment: A function of one sample.
        seed: Same seed: same split, same order, same augmentation.
        shuffle: Whether the training part comes in another order each epoch.
        exact: Decode JPEGs in full.
        on_error: "skip" or "raise".
        cache_dir: A folder for a cache on disk.

    Returns:
        A `tf.data.Dataset`, or one for training and one for validation.
    """
    settings = checked(
        image_size, batch_size, validation_split, ram_budget, augment, seed, shuffle, exact, on_error, cache_dir
    )
    if isinstance(paths, str | os.PathLike):
        raise InputError(f"paths={paths!r} is one path; expected a list. For a folder use memfit.data.image_folder.")
    if labels is not None and masks is not None:
        raise InputError("labels and masks were both given; a sample has one or the other. Leave one of them out.")
    pictures = [os.fspath(path) for path in paths]
    if not pictures:
        raise InputError("paths is empty; expected at least one picture.")
    for name, others in (("labels", labels), ("masks", masks)):
        if others is not None and len(others) != len(pictures):
            raise InputError(f"{len(pictures)} paths but {len(others)} {name}; expected as many of each.")
    if masks is None:
        files: list[tuple[str, ...]] = [(path,) for path in pictures]
    else:
        files = [(path, os.fspath(other)) for path, other in zip(pictures, masks, strict=True)]
    made = datasets(Material(tuple(files), labels, pairs=masks is not None), settings)
    return made[0] if len(made) == 1 else tuple(made)
