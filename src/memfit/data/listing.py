"""The pictures of a folder and their classes, found without opening a file."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memfit.data.facts import Broken
from memfit.errors import InputError

# What TensorFlow decodes; WebP since 2.19 or so, which the build finds out.
SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
# Pictures people have that TensorFlow does not decode.
_FOREIGN = (".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".psd", ".raw", ".nef", ".cr2", ".dng")
_NAMED = 5


@dataclass(frozen=True)
class Listing:
    """Files in the order of their names, each with the number of its class."""

    paths: tuple[str, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    ignored: tuple[Broken, ...]
    notes: tuple[str, ...]


def list_folder(directory: str | os.PathLike[str]) -> Listing:
    """Find the pictures of a folder whose folders are the classes.

    Raises:
        InputError: If it is no folder, or has no pictures in folders.
    """
    root = Path(directory)
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise InputError(f"{str(directory)!r} {what}; expected a folder with one folder of pictures for each class.")
    class_names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not _hidden(entry.name))
    paths: list[str] = []
    labels: list[int] = []
    ignored: list[Broken] = []
    empty = []
    for label, name in enumerate(class_names):
        found = [path for path in _files(root / name) if _is_picture(path, ignored)]
        paths += found
        labels += [label] * len(found)
        empty += [] if found else [name]
    if not paths:
        raise InputError(_nothing(root, class_names, ignored))
    notes = []
    if len(class_names) == 1:
        notes.append(f"there is a single class, {class_names[0]!r}: every label is 0")
    if empty:
        notes.append(f"no pictures in the folders of {names(empty)}, which stay classes")
    if beside := [path for path in _files(root, deep=False) if path.lower().endswith(SUFFIXES)]:
        notes.append(f"{len(beside)} pictures directly in the folder have no class and are left out")
    return Listing(tuple(paths), tuple(labels), tuple(class_names), tuple(ignored), tuple(notes))


def split_indices(count: int, fraction: float, seed: int | None) -> tuple[list[int], list[int]]:
    """Indices for training and validation, drawn with the seed, each in ascending order."""
    if not 0 <= fraction < 1:
        raise InputError(f"validation_split={fraction!r} must be a share from 0 to below 1, such as 0.2.")
    held_out = round(count * fraction)
    if fraction and not 0 < held_out < count:
        raise InputError(
            f"validation_split={fraction!r} of {count} pictures leaves none for "
            f"{'training' if held_out else 'validation'}. Use another share, or more pictures."
        )
    chosen = set(random.Random(seed).sample(range(count), held_out))
    return [index for index in range(count) if index not in chosen], sorted(chosen)


def names(found: Sequence[str]) -> str:
    """The first few by name, and how many more there are."""
    shown = ", ".join(found[:_NAMED])
    return shown if len(found) <= _NAMED else f"{shown} and {len(found) - _NAMED} more"


def _nothing(root: Path, class_names: Sequence[str], ignored: Sequence[Broken]) -> str:
    here = [path for path in _files(root, deep=False) if path.lower().endswith(SUFFIXES)]
    if here and not class_names:
        return (
            f"{str(root)!r} holds {len(here)} pictures but no folders; folders name the classes. "
            "Put each class into its own folder, or use memfit.data.images(paths, labels)."
        )
    others = f" What is there cannot be used: {names([each.path for each in ignored])}." if ignored else ""
    return f"no pictures in {str(root)!r}; expected {', '.join(SUFFIXES)} in one folder for each class.{others}"


def _files(folder: Path, *, deep: bool = True) -> Iterator[str]:
    """Files below a folder in the order of their names; hidden ones are none of ours."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if _hidden(entry.name):
            continue
        if entry.is_dir():
            if deep:
                yield from _files(Path(entry.path))
        else:
            yield entry.path


def _is_picture(path: str, ignored: list[Broken]) -> bool:
    lower = path.lower()
    if lower.endswith(SUFFIXES):
        return True
    suffix = Path(lower).suffix
    reason = f"TensorFlow cannot decode {suffix} files" if lower.endswith(_FOREIGN) else "not a picture by its name"
    ignored.append(Broken(path, reason))
    return False


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
