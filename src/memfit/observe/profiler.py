"""TensorFlow's profiler around one step, and the allocations it saw.

The allocator reports every allocation to the profiler's host plane, on the CPU (with the BFC allocator) as on a GPU,
and the TensorFlow wheel can read the file: no plugin is needed.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from memfit.framework import tensorflow

_ALLOCATION, _DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
# Operations are reported from level 2 on, with their names and types.
_HOST_TRACER_LEVEL = 2


@dataclass(frozen=True)
class Allocation:
    """One change of what the allocator holds."""

    picoseconds: int
    address: int
    signed_bytes: int
    """What the allocator gave, or with a minus took back; at least what was asked for."""
    in_use: int
    """Afterwards."""
    free: int | None
    """What is left of the limit then."""
    scattered: float | None
    """The share of the allocator's free memory that is not in its largest piece."""
    op: str
    """Empty where the allocator was not told, as for everything that is freed."""
    region: str
    """`output`, `temp`, `persist`, or empty."""
    dtype: str | None
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Profile:
    """What the profiler saw, in the order of time."""

    allocations: tuple[Allocation, ...]
    op_types: dict[str, str]


def free_at_peak(profile: Profile) -> tuple[int, int] | None:
    """The bytes that are free when the most are in use, and how many of them are in the largest piece.

    For an allocator that has taken all it may from the start: free memory in several regions is never one piece.
    """
    known = [each for each in profile.allocations if each.free is not None and each.scattered is not None]
    if not known:
        return None
    peak = max(known, key=lambda each: each.in_use)
    free = int(peak.free or 0)
    return free, int(free * (1 - (peak.scattered or 0.0)))


class ProfiledStep:
    """The profiler, running. There is one in a process: where a callback of the user's has it, this does nothing."""

    def __init__(self) -> None:
        profiler = tensorflow().profiler.experimental
        self.running = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="memfit-profile-", ignore_cleanup_errors=True)
        except OSError:
            # No temporary folder can be written: the step runs without a profile.
            return
        # Nothing of the device's own: its kernels are not asked for, and reading them needs CUPTI.
        options = profiler.ProfilerOptions(
            host_tracer_level=_HOST_TRACER_LEVEL, python_tracer_level=0, device_tracer_level=0
        )
        try:
            profiler.start(self._folder.name, options=options)
            self.running = True
        except tensorflow().errors.OpError:
            return

    def stop(self, device: str) -> Profile | None:
        """End it and read what a device allocated; `None` where there is nothing to read.

        Args:
            device: Such as `"GPU:0"`.
        """
        try:
            if not self.running or self._folder is None:
                return None
            self.running = False
            tensorflow().profiler.experimental.stop()
            files = sorted(Path(self._folder.name).glob("**/*.xplane.pb"))
            return read_profile(files[0].read_bytes(), device) if files else None
        except (tensorflow().errors.OpError, OSError):
            return None
        finally:
            if self._folder is not None:
                self._folder.cleanup()


def read_profile(data: bytes, device: str) -> Profile:
    """Read an XPlane file.

    Args:
        data: The file's bytes.
        device: The device whose allocations are meant.
    """
    space = _xspace()
    space.ParseFromString(data)
    by_allocator: dict[str, list[Allocation]] = {}
    op_types: dict[str, str] = {}
    for plane in space.planes:
        names = {number: each.name for number, each in plane.event_metadata.items()}
        for name in names.values():
            op, colon, op_type = name.rpartition(":")
            if colon and not op.endswith(":") and not op_type.startswith(" "):
                op_types[op] = op_type
        for allocator, allocation in _allocations(plane, names):
            by_allocator.setdefault(allocator, []).append(allocation)
    mine = max(_of_device(by_allocator, device), key=len, default=[])
    return Profile(tuple(sorted(mine, key=lambda each: each.picoseconds)), op_types)


def _of_device(by_allocator: dict[str, list[Allocation]], device: str) -> list[list[Allocation]]:
    """The allocators of a device: `GPU_0_bfc` is that of GPU:0, and the CPU's go by several names."""
    kind, _, number = device.partition(":")
    if kind == "GPU":
        return [found for name, found in by_allocator.items() if name.lower().startswith(f"gpu_{number}_")]
    return [found for name, found in by_allocator.items() if not name.startswith("GPU_")]


def _allocations(plane: Any, names: dict[int, str]) -> Iterator[tuple[str, Allocation]]:
    stat_names = {number: each.name for number, each in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            name = names.get(event.metadata_id)
            if name not in (_ALLOCATION, _DEALLOCATION):
                continue
            stats = {stat_names[stat.metadata_id]: _value(stat, stat_names) for stat in event.stats}
            sign = 1 if name == _ALLOCATION else -1
            yield (
                str(stats.get("allocator_name", "")),
                Allocation(
                    picoseconds=line.timestamp_ns * 1000 + event.offset_ps,
                    address=int(stats.get("addr", 0)),
                    signed_bytes=sign * int(stats.get("allocation_bytes", 0)),
                    in_use=int(stats.get("bytes_allocated", 0)),
                    free=stats.get("bytes_available"),
                    scattered=stats.get("fragmentation"),
                    op=str(stats.get("tf_op", "")),
                    region=str(stats.get("region_type", "")),
                    dtype=_dtype(stats.get("data_type")),
                    shape=_shape(stats.get("shape")),
                ),
            )


def _value(stat: Any, names: dict[int, str]) -> Any:
    which = stat.WhichOneof("value")
    if which is None:
        return None
    value = getattr(stat, which)
    return names.get(value) if which == "ref_value" else value


def _dtype(number: Any) -> str | None:
    if not number:
        return None
    try:
        return str(tensorflow().dtypes.as_dtype(int(number)).name)
    except (TypeError, ValueError):
        return None


def _shape(text: Any) -> tuple[int, ...] | None:
    """`[32,30,30,16]` as numbers."""
    parts = str(text or "").strip("[]").split(",")
    if not text or (parts != [""] and not all(part.isdigit() for part in parts)):
        return None
    return () if parts == [""] else tuple(map(int, parts))


def _xspace() -> Any:
    # TensorFlow moved it between versions.
    try:
        module = import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    except ImportError:
        module = import_module("tensorflow.core.profiler.protobuf.xplane_pb2")
    return module.XSpace()
