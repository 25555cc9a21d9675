"""What a data set is made of and how it was asked for, checked."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from memfit.data.facts import Broken
from memfit.data.listing import Listing
from memfit.errors import InputError
from memfit.hardware.host import host_memory
from memfit.units import GIB, Size, parse_size

OnError = Literal["skip", "raise"]
Augment = Callable[..., Any]


@dataclass(frozen=True)
class Settings:
    """How it was asked for."""

    image_size: tuple[int, int]
    batch_size: int
    validation_split: float
    ram_budget: int
    augment: Augment | None = None
    seed: int | None = None
    shuffle: bool = True
    exact: bool = False
    on_error: OnError = "skip"
    cache_dir: str | os.PathLike[str] | None = None


@dataclass(frozen=True)
class Material:
    """What it is made of."""

    files: tuple[tuple[str, ...], ...]
    """The files of each sample: the picture's, or the picture's and its mask's."""
    labels: Any = None
    pairs: bool = False
    """Whether samples are a picture and its mask."""
    ignored: tuple[Broken, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of_folder(cls, listing: Listing) -> "Material":
        """What lies in a folder."""
        files = tuple((path,) for path in listing.paths)
        return cls(files, list(listing.labels), ignored=listing.ignored, notes=listing.notes)


def checked(
    image_size: int | tuple[int, int],
    batch_size: int,
    validation_split: float,
    ram_budget: Size | None,
    augment: Augment | None,
    seed: int | None,
    shuffle: bool,
    exact: bool,
    on_error: OnError,
    cache_dir: str | os.PathLike[str] | None,
) -> Settings:
    """The settings, or an error that says what is wrong with one of them."""
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(size) != 2 or not all(isinstance(each, int) and each > 0 for each in size):
        raise InputError(f"image_size={image_size!r} must be height and width in pixels, such as (224, 224) or 224.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise InputError(f"batch_size={batch_size!r} must be a whole number from 1 on.")
    if on_error not in ("skip", "raise"):
        raise InputError(f'on_error={on_error!r} is neither "skip" nor "raise".')
    budget = _default_budget() if ram_budget is None else parse_size(ram_budget, what="ram_budget")
    return Settings(
        (size[0], size[1]), batch_size, validation_split, budget, augment, seed, shuffle, exact, on_error, cache_dir
    )


def _default_budget() -> int:
    """Half of what is free, as tf.data's own autotuner does."""
    usable = host_memory().usable
    return GIB if usable is None else usable // 2
