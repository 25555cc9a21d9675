"""`memfit.compress.export`: a pruned model in a file that does not store its zeros in full."""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from memfit.compress.kernels import kernels_of
from memfit.errors import InputError


def export(model: Any, path: str | Path, *, force: bool = False) -> int:
    """Save a model as a `.keras` file whose contents are compressed; `keras.saving.load_model` reads it like any other.

    Args:
        model: A built Keras model.
        path: Where to; it ends in `.keras`.
        force: Replace a file that is there.

    Returns:
        The size of the file in bytes.

    Raises:
        InputError: If the name ends otherwise, or the file is there.
    """
    kernels_of(model)
    target = Path(path)
    if target.suffix != ".keras":
        raise InputError(f"path {str(path)!r} must end in .keras, as Keras wants it.")
    if target.exists() and not force:
        raise InputError(f"{str(path)!r} is there already. Pass force=True to replace it.")
    with tempfile.TemporaryDirectory(prefix="memfit-", dir=target.parent) as directory:
        plain, packed = Path(directory) / "plain.keras", Path(directory) / "packed.keras"
        model.save(plain)
        with zipfile.ZipFile(plain) as read, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as written:
            for name in read.namelist():
                written.writestr(name, read.read(name))
        packed.replace(target)
    return target.stat().st_size
