"""Where a file is to be written: checked before the work, and put there whole after it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memfit.errors import InputError


def checked(path: str | Path, *, force: bool) -> Path:
    """The path, or an error that says why nothing can be written there."""
    target = Path(path)
    if target.exists() and not force:
        raise InputError(f"{str(path)!r} is there already. Pass force=True to replace it.")
    if not target.parent.is_dir():
        raise InputError(f"{str(path)!r} cannot be written: there is no folder {str(target.parent)!r}. Make it first.")
    return target


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A folder for what is on its way, on the same disk; it goes with all that was not moved out of it."""
    with tempfile.TemporaryDirectory(prefix="memfit-", dir=target.parent) as directory:
        yield Path(directory)
