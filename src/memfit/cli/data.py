"""`memfit data`: what a RAM budget means for a folder of pictures, without training."""

import re
from pathlib import Path
from typing import Annotated

import typer

from memfit import framework
from memfit.errors import InputError
from memfit.report.console import print_json, stdout


def data(
    folder: Annotated[Path, typer.Argument(help="A folder with one folder of pictures for each class.")],
    image_size: Annotated[str, typer.Option(help="What pictures are resized to: 224, or 224x320 (height x width).")],
    ram_budget: Annotated[
        str | None,
        typer.Option(help="Host memory for caches and batches, such as 4GiB. By default half of what is free."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples in a batch.")] = 32,
    validation_split: Annotated[float, typer.Option(help="The share of pictures that is held out.")] = 0.2,
    cache_dir: Annotated[Path | None, typer.Option(help="Where a cache on disk may be made; none is made now.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Decode JPEGs in full.")] = False,
    seed: Annotated[int, typer.Option(help="Chooses the sample and the split.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which caches, prefetching and parallelism a RAM budget allows for a folder of pictures.

    A sample of the files is read and decoded; nothing is trained and nothing is written.
    """
    size = _size(image_size)
    from memfit.data.listing import list_folder
    from memfit.data.settings import Material, checked

    settings = checked(
        size, batch, validation_split, ram_budget, None, seed, shuffle=True, exact=exact, on_error="skip",
        cache_dir=cache_dir,
    )  # fmt: skip
    listing = list_folder(folder)
    framework.import_for_predicting()
    from memfit.data.building import decided
    from memfit.report.data import render_data

    layout = decided(Material.of_folder(listing), settings).layout
    skipped = (*listing.ignored, *layout.measured.broken)
    if as_json:
        left_out = [{"path": each.path, "reason": each.reason} for each in skipped]
        print_json({**layout.to_dict(), "class_names": list(listing.class_names), "left_out": left_out})
    else:
        stdout().print(render_data(layout, skipped))


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:[x,](\d+))?", text.strip())
    if match is None:
        raise InputError(f"--image-size {text!r} is not a size; write 224, or 224x320 for height x width.")
    height = int(match[1])
    return height, int(match[2] or height)
