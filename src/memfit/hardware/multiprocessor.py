"""What a GPU's generation says of its multiprocessors, for the libraries that want the card described."""

from dataclasses import dataclass

from memfit.hardware.catalog import GPU
from memfit.units import KIB

# What a card is taken for when only its memory is known: an A100.
UNKNOWN_CAPABILITY = (8, 0)
_UNKNOWN_MULTIPROCESSORS = 108


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of one multiprocessor (CUDA C++ Programming Guide, table "Technical Specifications")."""

    shared_memory: int
    shared_memory_per_block: int
    threads: int
    blocks: int
    float_units: int


_BY_CAPABILITY = {
    (6, 0): Multiprocessor(64 * KIB, 48 * KIB, 2048, 32, 64),
    (6, 1): Multiprocessor(96 * KIB, 48 * KIB, 2048, 32, 128),
    (7, 0): Multiprocessor(96 * KIB, 96 * KIB, 2048, 32, 64),
    (7, 5): Multiprocessor(64 * KIB, 64 * KIB, 1024, 16, 64),
    (8, 0): Multiprocessor(164 * KIB, 163 * KIB, 2048, 32, 64),
    (8, 6): Multiprocessor(100 * KIB, 99 * KIB, 1536, 16, 128),
    (8, 9): Multiprocessor(100 * KIB, 99 * KIB, 1536, 24, 128),
    (9, 0): Multiprocessor(228 * KIB, 227 * KIB, 2048, 32, 128),
    (10, 0): Multiprocessor(228 * KIB, 227 * KIB, 2048, 32, 128),
    (12, 0): Multiprocessor(100 * KIB, 99 * KIB, 1536, 24, 128),
}


def limits_of(capability: tuple[int, int]) -> Multiprocessor:
    """The limits of the nearest generation that is not newer; of the oldest for cards before it."""
    known = [each for each in sorted(_BY_CAPABILITY) if each <= capability]
    return _BY_CAPABILITY[known[-1] if known else min(_BY_CAPABILITY)]


def multiprocessors_of(gpu: GPU) -> int:
    """The multiprocessors of a GPU; an A100's where that is not known."""
    return gpu.multiprocessors or _UNKNOWN_MULTIPROCESSORS
