"""What is known about a set of pictures and what was decided about it, as plain facts."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Cache = Literal["decoded", "encoded", "disk", "none"]


@dataclass(frozen=True)
class Broken:
    """A file that cannot be used."""

    path: str
    reason: str


@dataclass(frozen=True)
class Measured:
    """What a sample of the files told. Bytes and seconds are those of one sample: a picture, or with its mask."""

    sampled: int
    encoded_bytes: int
    """As it lies on disk, on average."""
    decoded_bytes: int
    """Unpacked, on average: in full, or as small as the decoder makes it."""
    largest_bytes: int
    """What reading the largest of them holds at once: its file and its pixels."""
    sample_bytes: int
    """As it is fed: resized, one byte per channel."""
    read_seconds: float
    decode_seconds: float
    broken: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class Split:
    """One part of the data, as it will be asked for."""

    name: str
    samples: int
    batch_size: int
    shuffled: bool = False
    augmented: bool = False


@dataclass(frozen=True)
class Decision:
    """What was decided for one split."""

    split: Split
    batch_bytes: int
    cache: Cache
    cached_samples: int
    cache_bytes: int
    """Host memory the cache holds when it is full."""
    disk_bytes: int
    working_bytes: int
    """Host memory that batches on their way hold."""
    prefetch: int
    parallel_batches: int
    parallel_decodes: int
    """Pictures that are decoded at once, for each batch that is being made."""
    saved_seconds: float
    """What the cache saves in an epoch, in seconds of one core."""
    whole_decoded_bytes: int
    """What a cache of all of its samples, decoded, would hold."""

    @property
    def ram_bytes(self) -> int:
        """The most host memory this split takes."""
        return self.cache_bytes + self.working_bytes


@dataclass(frozen=True)
class Layout:
    """Everything that was decided for a set of pictures under one budget."""

    ram_budget: int
    overhead_bytes: int
    """What TensorFlow's threads and allocator and the list of files take beside it."""
    measured: Measured
    decisions: tuple[Decision, ...]
    enough_budget: int
    """The budget at which every split would be cached decoded."""
    exact: bool = False
    notes: tuple[str, ...] = ()

    @property
    def ram_bytes(self) -> int:
        """The most host memory all of it takes."""
        return self.overhead_bytes + sum(each.ram_bytes for each in self.decisions)

    @property
    def saved_seconds(self) -> float:
        """What the caches save in an epoch, in seconds of one core."""
        return sum(each.saved_seconds for each in self.decisions)

    def of(self, name: str) -> Decision:
        """The decision for the split of that name."""
        return next(each for each in self.decisions if each.split.name == name)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        measured = self.measured
        return {
            "ram_budget_bytes": self.ram_budget,
            "ram_bytes": self.ram_bytes,
            "overhead_bytes": self.overhead_bytes,
            "enough_budget_bytes": self.enough_budget,
            "exact": self.exact,
            "measured": {**asdict(measured), "broken": [asdict(each) for each in measured.broken]},
            "splits": [{**asdict(each.split), **_decided(each)} for each in self.decisions],
            "notes": list(self.notes),
        }


def _decided(decision: Decision) -> dict[str, Any]:
    return {name: value for name, value in asdict(decision).items() if name != "split"}


@dataclass(frozen=True)
class Stage:
    """A part of the user's own pipeline that holds elements."""

    what: str
    held_bytes: int | None
    """`None` where it cannot be known before it has run."""


@dataclass(frozen=True)
class Bounds:
    """What was put onto the user's own pipeline."""

    ram_budget: int
    element_bytes: int
    stages: tuple[Stage, ...]
    prefetch: int

    @property
    def ram_bytes(self) -> int:
        """What is known to be held, with the batches that wait and the one in use."""
        return sum(each.held_bytes or 0 for each in self.stages) + (self.prefetch + 1) * self.element_bytes

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "ram_budget_bytes": self.ram_budget,
            "ram_bytes": self.ram_bytes,
            "element_bytes": self.element_bytes,
            "stages": [asdict(each) for each in self.stages],
            "prefetch": self.prefetch,
        }
