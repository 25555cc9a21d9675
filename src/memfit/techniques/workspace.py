"""A cap on the scratch memory of convolutions.

On a GPU cuDNN tries every kernel on the first step. A U-Net of 256 pixels at batch 8 peaked at 6.2 GiB then on an H200,
and at 3.5 GiB with a cap of 1 GiB, as in every later step (benchmarks/results/techniques_h200.json).

On a CPU without oneDNN, TensorFlow's gradients of convolutions copy image patches into a buffer of about 30 MiB each.
Above the cap it is asked for the kernels that do without.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memfit.compat.convolution_kernels import smaller_than
from memfit.errors import InputError
from memfit.framework import tensorflow
from memfit.hardware import onednn, scratch
from memfit.techniques.technique import Verdict
from memfit.units import MIB, Size, format_size, parse_size

SMALLEST = "1MiB"
"""TensorFlow's unit for it."""

# The cap that this process's convolutions took up, as far as plans set it; TensorFlow reads it once.
_taken_up: list[int] = []


def for_cpu() -> dict[str, Any]:
    """The technique by its name where TensorFlow's own kernels run on the CPU; nothing elsewhere."""
    on_gpu = tensorflow().config.list_physical_devices("GPU")
    return {"workspace": SMALLEST} if onednn.is_off() and not on_gpu else {}


def check(model: Any, value: Any) -> Verdict:
    """Refuse what is no size, and what comes too late.

    Args:
        model: A built, compiled Keras model.
        value: The cap, such as `"1GiB"`.

    Raises:
        InputError: If it is no size of at least 1 MiB, or an earlier plan's larger cap is in force.
    """
    limit = parse_size(value, what="workspace")
    if limit < MIB:
        raise InputError(f"workspace must be at least 1 MiB, which is TensorFlow's unit for it; got {value!r}.")
    if _taken_up and limit < _taken_up[0]:
        raise InputError(
            f"workspace={value!r}, but {model.name!r} would train in a process that has trained with a cap of "
            f"{format_size(_taken_up[0])}, and TensorFlow reads it once. Start a new process for this plan."
        )
    return Verdict("exact", f"convolutions use no kernel with more than {format_size(limit)} of scratch memory")


@contextmanager
def applied(model: Any, value: Size) -> Iterator[None]:
    """Cap what convolutions that run for the first time inside may ask for."""
    check(model, value)
    limit = parse_size(value, what="workspace")
    if not tensorflow().config.list_physical_devices("GPU"):
        with smaller_than(limit, unless=lambda: bool(model.jit_compile)):
            yield
        return
    if not _taken_up:
        _taken_up.append(limit)
    with scratch.capped(limit):
        yield
