"""What cuDNN itself says of a convolution: the kernels it offers on a card, and the workspace of each.

cuDNN comes with `memfit[cuda]`, which TensorFlow needs on a GPU anyway, and with `memfit[xla]`. From 9.8 on it answers
for a card that is only described, so no GPU is needed. TensorFlow and XLA time the kernels that it offers and keep the
fastest. In 1,410 convolutions of 28 compiled steps on an H200 that had the workspace of the first kernel offered in
94 of 100 cases, within 12 MiB.

For a described card cuDNN leaves out the kernels that it has to load to size them: those with Fourier transforms and
Winograd's filter gradient. `transforms` has their sizes.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from memfit.cache import cached
from memfit.framework import installed_version
from memfit.hardware.catalog import GPU
from memfit.hardware.multiprocessor import UNKNOWN_CAPABILITY, limits_of, multiprocessors_of
from memfit.hardware.transforms import kernels_left_out
from memfit.units import KIB, MIB

_CHILD = "memfit.hardware.cudnn_child"
_TIMEOUT = 120
_DISTRIBUTIONS = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
# Asking for a described card came with this version.
_OLDEST = (9, 8)
_UNKNOWN_CLOCK_HZ, _UNKNOWN_L2 = 1.41e9, 40 * MIB

Kind = Literal["forward", "input", "filter"]


@dataclass(frozen=True)
class Problem:
    """A convolution, or one of its gradients, as cuDNN is asked for it."""

    kind: Kind
    """What is computed: the output, or the gradient of the image (`input`) or of the filter."""
    dtype: str
    """`f32`, `f16`, `bf16` or `f64`."""
    image: tuple[int, ...]
    """Samples, channels, and the spatial dimensions."""
    filter: tuple[int, ...]
    """Output channels, input channels of a group, and the window."""
    output: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilations: tuple[int, ...]
    channels_last: bool
    adds_bias: bool = False
    """Whether the same kernel adds a bias, as XLA has it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that cuDNN offers."""

    engine: int
    workspace: int


class _UnansweredError(Exception):
    """The child failed, as it does where cuDNN lacks a library or the card has no memory left."""


_ANSWERS: dict[tuple[str, str | int], dict[Problem, tuple[Kernel, ...]]] = {}


def kernels(problems: Sequence[Problem], gpu: GPU, *, on_card: bool = False) -> dict[Problem, tuple[Kernel, ...]]:
    """The kernels for each convolution on a card, in the order in which cuDNN believes in them.

    Args:
        problems: The convolutions.
        gpu: The card.
        on_card: Ask about the first GPU of this machine itself, which must be that card.

    Returns:
        What cuDNN answered; empty where there is no cuDNN that can be asked.
    """
    library = _library()
    if not problems or library is None:
        return {}
    if on_card and (found := _remembered(problems, library, gpu, device=0)):
        return found
    found = _remembered(problems, library, gpu, device=description(gpu))
    return {
        problem: (*offered, *(Kernel(*each) for each in kernels_left_out(problem)))
        for problem, offered in found.items()
    }


def _remembered(
    problems: Sequence[Problem], library: Path, gpu: GPU, *, device: str | int
) -> dict[Problem, tuple[Kernel, ...]]:
    """The answers; cuDNN is asked for each convolution once."""
    known = _ANSWERS.setdefault((gpu.name, device), {})
    if wanted := [problem for problem in dict.fromkeys(problems) if problem not in known]:
        listed = [asdict(problem) for problem in wanted]
        request = {
            "library": str(library),
            "needs": [str(path) for path in _needed_libraries()],
            "device": device,
            "problems": listed,
        }
        key = (json.dumps([device, gpu.name, listed]), str(cudnn_version()))
        try:
            answers = json.loads(cached("cudnn", key, lambda: _ask(request)))
        except _UnansweredError:
            answers = [None] * len(wanted)
        for problem, answer in zip(wanted, answers, strict=True):
            known[problem] = tuple(Kernel(*each) for each in answer or ())
    return {problem: known[problem] for problem in problems if known[problem]}


def description(gpu: GPU) -> str:
    """A card as cuDNN describes one (`CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`); these are an H200's fields."""
    capability = gpu.compute_capability or UNKNOWN_CAPABILITY
    limits = limits_of(capability)
    return json.dumps(
        {
            "maxGridSize": [2**31 - 1, 2**16 - 1, 2**16 - 1],
            "maxBlockSize": [1024, 1024, 64],
            "regsPerBlock": 2**16,
            "multiProcessorCount": multiprocessors_of(gpu),
            "warpSize": 32,
            "maxSharedMemoryPerBlock": 48 * KIB,
            "maxSharedMemoryPerBlockOptin": limits.shared_memory_per_block,
            "reservedSharedMemoryPerBlock": KIB if capability >= (8, 0) else 0,
            "maxRegistersPerSM": 2**16,
            "maxCtasPerSM": limits.blocks,
            "maxThreadsPerBlock": 1024,
            "maxThreadsPerSM": limits.threads,
            "pciDeviceId": 0,
            "isTccDriver": 0,
            "supportCoopLaunch": 1,
            "totalGlobalMem": gpu.memory,
            "smClockRateKHz": int((gpu.clock_hz or _UNKNOWN_CLOCK_HZ) / 1000),
            "memClockRateKHz": 3201000,
            "l2CacheSize": gpu.l2_cache or _UNKNOWN_L2,
            "cudaDeviceId": 0,
            "deviceVer": 100 * capability[0] + 10 * capability[1],
            "driverVer": 13000,
            "deviceName": f"NVIDIA {gpu.name}",
        },
        separators=(",", ":"),
    )


def _ask(request: Mapping[str, object]) -> bytes:
    """The child's answers."""
    with tempfile.TemporaryDirectory(prefix="memfit-cudnn-") as name:
        asked, answer, log = (Path(name) / each for each in ("request.json", "answer.json", "log"))
        asked.write_text(json.dumps(request), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with log.open("wb") as output:
            try:
                subprocess.run(
                    [sys.executable, "-m", _CHILD, str(asked), str(answer)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=_TIMEOUT,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise _UnansweredError from error
        if not answer.exists():
            raise _UnansweredError
        return answer.read_bytes()


@cache
def cudnn_version() -> tuple[int, ...] | None:
    """The version of the cuDNN that can be asked; `None` where there is none."""
    for name in _DISTRIBUTIONS:
        version = installed_version(name)
        if version:
            return tuple(int(part) for part in version.split(".") if part.isdigit())
    return None


def _library() -> Path | None:
    """The cuDNN that was installed with TensorFlow or the `xla` extra, where it is new enough."""
    version = cudnn_version()
    if version is None or version < _OLDEST:
        return None
    return next(_installed("cudnn/lib/libcudnn.so.9"), None)


def _needed_libraries() -> list[Path]:
    """What cuDNN opens by name when it is asked."""
    return [*_installed("cublas/lib/libcublasLt.so.*"), *_installed("cu13/lib/libcublasLt.so.*")]


def _installed(pattern: str) -> Iterator[Path]:
    """Files of NVIDIA's packages; several of them make up the package `nvidia`, in any directory of the import path."""
    for entry in dict.fromkeys(sys.path):
        yield from sorted(Path(entry or ".", "nvidia").glob(pattern))
