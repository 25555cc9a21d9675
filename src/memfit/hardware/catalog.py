"""The GPUs people train on, by name.

`gpus.csv` holds one card per line. `memory_mib` is what the driver reports (`nvidia-smi`), which is less
than the number on the box where ECC takes its share; rates are the vendor's peak figures: `fp32_tflops`
without tensor cores, `tensor_tflops` dense float16 with float32 accumulation.
"""

import csv
import difflib
import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from memfit.errors import UnknownGpuError
from memfit.units import GIB, MIB, Size, format_size, parse_size

# What the driver and the CUDA context hold before TensorFlow asks how much is free. Fitted to start-up lines
# ("Created device … with 13757 MB memory: … Tesla T4") of T4, V100, P100, L4, RTX 3090, A100 40/80, H100 and H200:
# 375 to 1187 MiB, within 330 MiB of this line.
_DRIVER_BASE, _DRIVER_SHARE = 450 * MIB, 0.007

# TensorFlow leaves this much of what is free to the system (gpu_device.cc, MinSystemMemory).
_SMALL_CARD, _SMALL_CARD_RESERVE = 2 * GIB, 225 * MIB
_RESERVE_BY_MAJOR = {6: 500 * MIB, 7: 1050 * MIB, 8: 1536 * MIB, 9: 1800 * MIB}

# The sizes cards are sold with; the driver reports a little less.
_SOLD_GB = (3, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 80, 94, 96, 141, 180)

# Words that tell no two cards apart once the rest of the name is known.
_NOISE = frozenset(
    (
        *("nvidia", "geforce", "tesla", "quadro", "gtx", "rtx", "gpu", "graphics", "card"),
        *("generation", "workstation", "server", "edition", "hbm2", "hbm2e", "hbm3", "hbm3e"),
    )
)
_FORM_FACTORS = frozenset(("pcie", "sxm2", "sxm4", "sxm5"))

# A number with a unit is a size; digits alone are a model number ("3060").
_SIZE = re.compile(r"\s*-?[\d.]+\s*[kmgt](?:i?b)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class GPU:
    """One GPU model. What is not known of it (a card given by its memory alone) is `None`."""

    name: str
    memory: int
    compute_capability: tuple[int, int] | None = None
    bandwidth: float | None = None
    """Bytes per second."""
    fp32_flops: float | None = None
    tensor_flops: float | None = None
    """Dense float16 with float32 accumulation; `None` where there are no tensor cores."""
    multiprocessors: int | None = None
    clock_hz: float | None = None
    l2_cache: int | None = None

    @property
    def tf32_flops(self) -> float | None:
        """The rate of float32 convolutions and matmuls on tensor cores (Ampere and later)."""
        if self.tensor_flops is None or self.compute_capability is None or self.compute_capability < (8, 0):
            return None
        return self.tensor_flops / 2

    @property
    def default_limit(self) -> int:
        """The bytes TensorFlow takes for itself on an idle card when nothing is configured."""
        free = self.memory - _DRIVER_BASE - int(self.memory * _DRIVER_SHARE)
        return max(0, free - self._system_reserve(free))

    def _system_reserve(self, free: int) -> int:
        if free < _SMALL_CARD:
            return _SMALL_CARD_RESERVE
        major = self.compute_capability[0] if self.compute_capability else 8
        return _RESERVE_BY_MAJOR[min(max(major, 6), 9)]

    def to_dict(self) -> dict[str, object]:
        """The GPU as plain JSON values."""
        capability = self.compute_capability
        return {
            "name": self.name,
            "memory_bytes": self.memory,
            "default_limit_bytes": self.default_limit,
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
            "bandwidth_bytes_per_s": self.bandwidth,
            "fp32_flops": self.fp32_flops,
            "tf32_flops": self.tf32_flops,
            "tensor_flops": self.tensor_flops,
            "multiprocessors": self.multiprocessors,
            "clock_hz": self.clock_hz,
            "l2_cache_bytes": self.l2_cache,
        }


@cache
def catalog() -> tuple[GPU, ...]:
    """Every GPU of the catalog, in the order of the file."""
    with files(__package__).joinpath("gpus.csv").open(encoding="utf-8") as lines:
        return tuple(_from_row(row) for row in csv.DictReader(lines))


def find_gpu(name: Size) -> GPU:
    """Look a GPU up by a forgiving name, or make one from a memory size.

    Args:
        name: `"RTX 3060"`, `"3060"`, `"rtx3060 12gb"`, `"a100-80"`, the driver's full name, or a size such as
            `"24GiB"` for a card the catalog does not have.

    Returns:
        The card. Where only the form factor is open (PCIe or SXM), the first in the catalog.

    Raises:
        UnknownGpuError: If nothing matches, or cards with different memory do; it names the nearest.
        SizeError: If a size is given that is none.

    Example:
        >>> find_gpu("a100-80").name
        'A100 SXM4 80GB'
    """
    if not isinstance(name, str) or _SIZE.fullmatch(name):
        memory = parse_size(name, what="GPU memory")
        return GPU(name=f"a card of {format_size(memory)}", memory=memory)
    wanted = _words(name)
    ranked = sorted(
        (
            (len(entry.distinguishing - wanted), entry.gpu)
            for entry in _index()
            if wanted & entry.distinguishing - entry.sizes and wanted <= entry.accepted
        ),
        key=lambda pair: pair[0],
    )
    if not ranked:
        raise UnknownGpuError(name, reason="is not in the catalog", candidates=_nearest(name))
    best = [gpu for distance, gpu in ranked if distance == ranked[0][0]]
    if len({gpu.memory for gpu in best}) > 1:
        raise UnknownGpuError(name, reason="could be several cards", candidates=[gpu.name for gpu in best][:6])
    return best[0]


def _from_row(row: dict[str, str]) -> GPU:
    major, minor = row["compute_capability"].split(".")
    return GPU(
        name=row["name"],
        memory=int(row["memory_mib"]) * MIB,
        compute_capability=(int(major), int(minor)),
        bandwidth=float(row["bandwidth_gb_s"]) * 1e9,
        fp32_flops=float(row["fp32_tflops"]) * 1e12,
        tensor_flops=float(row["tensor_tflops"]) * 1e12 if row["tensor_tflops"] else None,
        multiprocessors=int(row["multiprocessors"]),
        clock_hz=int(row["clock_mhz"]) * 1e6,
        l2_cache=int(float(row["l2_mib"]) * MIB),
    )


def _words(name: str) -> frozenset[str]:
    text = name.lower()
    text = re.sub(r"(\d)\s*(?:gib|gb|g)\b", r"\1gb", text)
    text = re.sub(r"\b(rtx|gtx|titan|quadro|tesla)(?=[a-z]?\d)", r"\1 ", text)
    text = re.sub(r"(\d{4})(?=ti|super|laptop|d\b|ada)", r"\1 ", text)
    text = re.sub(r"(?<=ti)(?=super)", " ", text)
    return frozenset(re.findall(r"[a-z0-9]+", text))


class _Entry(NamedTuple):
    gpu: GPU
    distinguishing: frozenset[str]
    """The words that tell the card from others."""
    sizes: frozenset[str]
    """How people write its memory."""
    accepted: frozenset[str]
    """Every word it answers to."""


@cache
def _index() -> tuple[_Entry, ...]:
    entries = []
    for gpu in catalog():
        words = _words(gpu.name)
        sold = _SOLD_GB[min(bisect_left(_SOLD_GB, gpu.memory / GIB), len(_SOLD_GB) - 1)]
        sizes = frozenset({f"{sold}gb", str(sold), f"{gpu.memory // GIB}gb"})
        entries.append(_Entry(gpu, words - _NOISE - _FORM_FACTORS, sizes, words | _NOISE | sizes))
    return tuple(entries)


def _nearest(name: str) -> list[str]:
    by_key = {" ".join(sorted(_words(gpu.name) - _NOISE)): gpu.name for gpu in catalog()}
    keys = difflib.get_close_matches(" ".join(sorted(_words(name) - _NOISE)), by_key, n=3, cutoff=0.5)
    return [by_key[key] for key in keys]
