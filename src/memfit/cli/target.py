"""What every command that takes a TARGET has in common."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from memfit.errors import InputError

if TYPE_CHECKING:
    from memfit.estimation.regime import Jit

Target: TypeAlias = Annotated[
    str, typer.Argument(help="file.py:function, package.module:function or model.keras", metavar="TARGET")
]
Batch: TypeAlias = Annotated[int, typer.Option("--batch", "-b", help="The batch size.")]
InputShape: TypeAlias = Annotated[str | None, typer.Option("--input", help="The input's shape, such as 224,224,3.")]
Optimizer: TypeAlias = Annotated[str | None, typer.Option(help="Compile with this optimizer.")]
Loss: TypeAlias = Annotated[str | None, typer.Option(help="Compile with this loss.")]
Policy: TypeAlias = Annotated[str | None, typer.Option(help="Build with this dtype policy, such as mixed_float16.")]
JitChoice: TypeAlias = Annotated[Literal["auto", "on", "off"], typer.Option(help="jit_compile on the target.")]
Card: TypeAlias = Annotated[str | None, typer.Option(help="The card, by name or memory size.")]

JIT: "dict[str, Jit]" = {"auto": "auto", "on": True, "off": False}


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """The sizes in `--input`.

    Raises:
        InputError: If they are none.
    """
    if text is None:
        return None
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise InputError(f"--input {text!r} must be sizes separated by commas, such as 224,224,3.")
    return sizes
