"""`memfit gpus`: the GPU catalog."""

from typing import Annotated

import typer

from memfit.hardware.catalog import catalog, find_gpu
from memfit.report.console import print_json, stdout
from memfit.report.gpus import render_gpus


def gpus(
    names: Annotated[
        list[str] | None, typer.Argument(help='Names such as "3060" or "a100-80", or sizes such as "24GiB".')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the GPUs memfit knows, or look some up."""
    found = [find_gpu(name) for name in names] if names else list(catalog())
    if as_json:
        print_json([gpu.to_dict() for gpu in found])
    else:
        stdout().print(render_gpus(found))
