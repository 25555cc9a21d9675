"""A cache on disk: every sample as it is fed, one after the other in one file, made before training.

It is written under another name and gets its own only when it is complete and on disk: what a killed process leaves is
never taken for a cache. The name carries everything it depends on: the files with their sizes and times, the size of
the pictures, how they are decoded. Samples are read by number, through the system's file cache and not this process's
memory.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfit import __version__
from memfit.data.sampling import Source
from memfit.errors import InputError
from memfit.framework import tensorflow
from memfit.units import format_size

_SAMPLES, _COMPLETE = "samples", "complete.json"
_UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class DiskStore:
    """A complete cache."""

    path: Path
    shapes: tuple[tuple[int, ...], ...]
    sample_bytes: int
    broken: tuple[int, ...]
    """Numbers of the samples that could not be read; their places are empty."""

    def read(self, indices: Any) -> tuple[Any, ...]:
        """The samples of these numbers, from a graph."""
        tf = tensorflow()
        flat = tf.ensure_shape(tf.numpy_function(self._rows, [indices], tf.uint8), [None, self.sample_bytes])
        parts, start = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            parts.append(tf.reshape(flat[:, start : start + size], [-1, *shape]))
            start += size
        return tuple(parts)

    def _rows(self, indices: Any) -> Any:
        import numpy as np

        rows = np.empty((len(indices), self.sample_bytes), np.uint8)
        with self.path.open("rb", buffering=0) as file:
            for row, index in zip(rows, indices, strict=True):
                if os.preadv(file.fileno(), [row.data], int(index) * self.sample_bytes) != self.sample_bytes:
                    raise InputError(
                        f"the cache {str(self.path)!r} was cut while it was used. Start again to rebuild it."
                    )
        return rows


def folder_for(directory: str | os.PathLike[str], source: Source, settings: Sequence[object]) -> Path:
    """The cache's folder, whose name changes with everything that would change its contents."""
    digest = hashlib.sha256(repr((__version__, source.shapes, *settings)).encode())
    for files in source.files:
        for path in files:
            status = Path(path).stat()
            digest.update(repr((path, status.st_size, status.st_mtime_ns)).encode())
    return Path(directory) / f"memfit-data-{digest.hexdigest()[:32]}"


def opened(folder: Path, source: Source) -> DiskStore | None:
    """The complete cache of this folder; `None` where there is none, or where it was cut."""
    try:
        said = json.loads((folder / _COMPLETE).read_text(encoding="utf-8"))
        size = (folder / _SAMPLES).stat().st_size
        broken = tuple(int(index) for index in said["broken"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if size != said.get("bytes") or size != len(source.files) * source.sample_bytes:
        return None
    return DiskStore(folder / _SAMPLES, source.shapes, source.sample_bytes, broken)


def filled(folder: Path, source: Source, batches: Any, *, step: Callable[[int], None] = lambda _: None) -> DiskStore:
    """Make the cache.

    Args:
        folder: Where; what lies there unfinished is written anew.
        source: The samples.
        batches: `(indices, parts)` of those that can be read.
        step: Called with the number of samples written, for progress.

    Raises:
        InputError: If the disk has not enough room or cannot be written.
    """
    needed = len(source.files) * source.sample_bytes
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}{_UNFINISHED}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder)
        if (free := shutil.disk_usage(folder.parent).free) < needed:
            raise InputError(
                f"a cache of {format_size(needed)} does not fit on the disk of {str(folder.parent)!r}, which has "
                f"{format_size(free)} free. Name another cache_dir, or leave it out."
            )
        unfinished.mkdir()
        came = _written(unfinished / _SAMPLES, needed, source.sample_bytes, batches, step)
        broken = sorted(set(range(len(source.files))) - came)
        with (unfinished / _COMPLETE).open("w", encoding="utf-8") as file:
            json.dump({"bytes": needed, "broken": broken}, file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    except OSError as error:
        raise InputError(
            f"the cache {str(folder)!r} cannot be written: {error.strerror or error}. Name another cache_dir."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return DiskStore(folder / _SAMPLES, source.shapes, source.sample_bytes, tuple(broken))


def _written(path: Path, needed: int, sample_bytes: int, batches: Any, step: Callable[[int], None]) -> set[int]:
    import numpy as np

    came: set[int] = set()
    with path.open("wb") as file:
        file.truncate(needed)
        for indices, parts in batches.as_numpy_iterator():
            rows = np.concatenate([part.reshape(len(indices), -1) for part in parts], axis=1)
            for index, row in zip(indices.tolist(), rows, strict=True):
                os.pwrite(file.fileno(), row.tobytes(), index * sample_bytes)
                came.add(index)
            step(len(indices))
        os.fsync(file.fileno())
    return came


def _remove_unfinished(folder: Path) -> None:
    """Take away what a killed process left; one that still lives keeps its own."""
    for path in folder.parent.glob(f"{folder.name}.*{_UNFINISHED}"):
        owner = path.name.removesuffix(_UNFINISHED).rpartition(".")[2]
        with suppress(OSError, ValueError):
            if not Path(f"/proc/{int(owner)}").exists() or int(owner) == os.getpid():
                shutil.rmtree(path)
