"""What is expensive to make is kept in the user's cache directory; what is broken there is made again.

`MEMFIT_CACHE` names another directory, or `off` for none. Only bytes are kept, never code or pickles.
"""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from memfit import __version__
from memfit.units import MIB

_MOST_BYTES = 512 * MIB
_DIGEST = hashlib.sha256().digest_size


def cached(kind: str, key: Sequence[bytes | str], make: Callable[[], bytes]) -> bytes:
    """Return what was made before for this key, or make it and keep it.

    Args:
        kind: What it is, for the file's name.
        key: Everything the result depends on.
        make: Makes it.
    """
    directory = cache_directory()
    if directory is None:
        return make()
    path = directory / f"{kind}-{_digest_of(key)}"
    payload = _read(path)
    if payload is None:
        payload = make()
        _write(path, payload)
    return payload


def cache_directory() -> Path | None:
    """Where things are kept; `None` if nowhere."""
    named = os.environ.get("MEMFIT_CACHE")
    if named:
        return None if named.lower() == "off" else Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "memfit"


def _digest_of(key: Sequence[bytes | str]) -> str:
    digest = hashlib.sha256(__version__.encode())
    for part in key:
        data = part.encode() if isinstance(part, str) else part
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


def _read(path: Path) -> bytes | None:
    try:
        stored = path.read_bytes()
        payload = zlib.decompress(stored[_DIGEST:])
    except (OSError, zlib.error):
        return None
    if hashlib.sha256(payload).digest() != stored[:_DIGEST]:
        return None
    with suppress(OSError):
        os.utime(path)
    return payload


def _write(path: Path, payload: bytes) -> None:
    """Keep a result; a cache that cannot be written is no reason to fail."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place, so that a killed process leaves no half of a file under the name.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + zlib.compress(payload, 1))
        Path(name).replace(path)
        _make_room(path.parent)


def _make_room(directory: Path) -> None:
    files = sorted((each for each in directory.iterdir() if each.is_file()), key=lambda each: each.stat().st_mtime)
    total = sum(each.stat().st_size for each in files)
    for each in files[:-1]:
        if total <= _MOST_BYTES:
            break
        total -= each.stat().st_size
        each.unlink(missing_ok=True)
