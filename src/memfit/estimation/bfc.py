"""TensorFlow's BFC allocator, as far as sizes go (xla/tsl/framework/bfc_allocator.cc).

Best fit with coalescing: free chunks are kept sorted by size and address, the first that fits is taken, split only
when at least half of it or 128 MiB would be left over. Statistics count chunks, not requests.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

from memfit.units import MIB

_ALIGNMENT = 256
_SPLIT_ANYWAY = 128 * MIB
_FIRST_REGION = 2 * MIB
# Regions never merge, so each starts in an address range of its own.
_REGION_STRIDE, _MOST_REGIONS = 1 << 44, 1 << 12


class OutOfMemory(Exception):  # noqa: N818 - an outcome, not an error of ours
    """The allocator has no chunk for a request and may not grow."""

    def __init__(self, requested: int) -> None:
        super().__init__(f"no room for {requested} bytes")
        self.requested = requested


@dataclass(slots=True)
class _Chunk:
    size: int
    in_use: bool
    previous: int | None
    next: int | None


class BFC:
    """A simulated allocator.

    Args:
        limit: The most it may take from the device.
        growth: Take regions that double as needed, or the whole limit with the first allocation.
        descending: Whether later regions lie at lower addresses. The driver decides, and equal free chunks are taken
            lowest address first.
    """

    def __init__(self, limit: int, *, growth: bool, descending: bool = False) -> None:
        self.limit = limit
        self.in_use = 0
        self.peak = 0
        self.reserved = 0
        self._growth = growth
        self._descending = descending
        self._next_region = _FIRST_REGION if growth else limit // _ALIGNMENT * _ALIGNMENT
        self._regions = 0
        self._free: list[tuple[int, int]] = []
        self._chunks: dict[int, _Chunk] = {}

    def allocate(self, size: int) -> int | None:
        """Allocate bytes; the address, or `None` for an empty request."""
        if size <= 0:
            return None
        rounded = -(-size // _ALIGNMENT) * _ALIGNMENT
        position = bisect_left(self._free, (rounded, -1))
        if position == len(self._free):
            self._extend(rounded)
            position = bisect_left(self._free, (rounded, -1))
        chunk_size, address = self._free.pop(position)
        chunk = self._chunks[address]
        if chunk_size >= 2 * rounded or chunk_size - rounded >= _SPLIT_ANYWAY:
            self._split(address, chunk, rounded)
        chunk.in_use = True
        self.in_use += chunk.size
        if self.in_use > self.peak:
            self.peak = self.in_use
        return address

    def chunk_size(self, address: int) -> int:
        """The size of the chunk an allocation got."""
        return self._chunks[address].size

    def free(self, address: int | None) -> None:
        """Give an allocation back; it merges with free neighbours at once."""
        if address is None:
            return
        chunk = self._chunks[address]
        chunk.in_use = False
        self.in_use -= chunk.size
        after = chunk.next
        if after is not None and not self._chunks[after].in_use:
            self._take_from_free(after)
            self._merge(address, after)
        before = chunk.previous
        if before is not None and not self._chunks[before].in_use:
            self._take_from_free(before)
            self._merge(before, address)
            address = before
        insort(self._free, (self._chunks[address].size, address))

    def reset_peak(self) -> None:
        """Start a new peak from what is in use now."""
        self.peak = self.in_use

    def _extend(self, rounded: int) -> None:
        available = (self.limit - self.reserved) // _ALIGNMENT * _ALIGNMENT
        if rounded > available:
            raise OutOfMemory(rounded)
        enlarged = False
        while rounded > self._next_region:
            self._next_region *= 2
            enlarged = True
        size = min(self._next_region, available)
        if self._growth and not enlarged:
            self._next_region *= 2
        self._regions += 1
        self.reserved += size
        place = _MOST_REGIONS - self._regions if self._descending else self._regions
        address = place * _REGION_STRIDE
        self._chunks[address] = _Chunk(size, False, None, None)
        insort(self._free, (size, address))

    def _split(self, address: int, chunk: _Chunk, size: int) -> None:
        rest = address + size
        self._chunks[rest] = _Chunk(chunk.size - size, False, address, chunk.next)
        if chunk.next is not None:
            self._chunks[chunk.next].previous = rest
        chunk.next, chunk.size = rest, size
        insort(self._free, (self._chunks[rest].size, rest))

    def _merge(self, address: int, following: int) -> None:
        chunk, gone = self._chunks[address], self._chunks.pop(following)
        chunk.size += gone.size
        chunk.next = gone.next
        if gone.next is not None:
            self._chunks[gone.next].previous = address

    def _take_from_free(self, address: int) -> None:
        del self._free[bisect_left(self._free, (self._chunks[address].size, address))]
