"""`memfit.compress.export`: a pruned model in a file that does not store its zeros in full."""

import zipfile
from pathlib import Path
from typing import Any

from memfit.compress.aware import stripped
from memfit.compress.destination import beside, checked
from memfit.errors import InputError
from memfit.slimming.rebuild import graph_of, rebuild


def export(model: Any, path: str | Path, *, force: bool = False) -> int:
    """Save a model as a `.keras` file whose contents are compressed; `keras.saving.load_model` reads it like any other.

    It is saved for use: without its optimizer, and what `quantization_aware` put around layers is taken off.

    Args:
        model: A built Functional or Sequential model.
        path: Where to; it ends in `.keras`.
        force: Replace a file that is there.

    Returns:
        The size of the file in bytes.

    Raises:
        InputError: If the model is not Functional, the name ends otherwise, or the file is there.
    """
    graph_of(model)
    target = checked(path, force=force)
    if target.suffix != ".keras":
        raise InputError(f"path {str(path)!r} must end in .keras, as Keras wants it.")
    with beside(target) as folder:
        plain, packed = folder / "plain.keras", folder / "packed.keras"
        rebuild(stripped(model), lambda _: None, compiled=False).save(plain)
        with zipfile.ZipFile(plain) as read, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as written:
            for name in read.namelist():
                written.writestr(name, read.read(name))
        packed.replace(target)
    return target.stat().st_size
