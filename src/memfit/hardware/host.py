"""Host memory and cores: what the machine has and what this process may use of it (memory on Linux; else unknown)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memfit.units import KIB

# Version 1 of cgroups writes "no limit" as a number near 2^63.
_NO_LIMIT = 2**60
_CGROUP_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}


@dataclass(frozen=True)
class HostMemory:
    """Bytes of host RAM; `None` where it is not known."""

    total: int | None
    available: int | None
    cgroup_limit: int | None
    cgroup_used: int | None

    @property
    def usable(self) -> int | None:
        """What this process can still take: the smaller of the machine's and the container's rest."""
        rests = [self.available]
        if self.cgroup_limit is not None:
            rests.append(self.cgroup_limit - (self.cgroup_used or 0))
        known = [rest for rest in rests if rest is not None]
        return min(known) if known else None

    @property
    def ceiling(self) -> int | None:
        """The most this process could ever have."""
        known = [size for size in (self.total, self.cgroup_limit) if size is not None]
        return min(known) if known else None

    def to_dict(self) -> dict[str, int | None]:
        """As plain JSON values."""
        return {
            "total_bytes": self.total,
            "available_bytes": self.available,
            "cgroup_limit_bytes": self.cgroup_limit,
            "cgroup_used_bytes": self.cgroup_used,
            "usable_bytes": self.usable,
        }


def usable_cores() -> int:
    """How many processor cores this process may use: as many threads as TensorFlow starts by default."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_memory(root: Path = Path("/")) -> HostMemory:
    """Read the machine's memory and the limits of the control groups this process is in."""
    meminfo = _meminfo(root / "proc/meminfo")
    limit, used = _cgroup(root)
    return HostMemory(meminfo.get("MemTotal"), meminfo.get("MemAvailable"), limit, used)


@dataclass(frozen=True)
class OomKills:
    """How many processes the kernel has killed for want of memory; `None` where it does not say."""

    group: int | None
    """In this process's control group, for reaching the group's limit."""
    machine: int | None
    """On the whole machine, since it was started."""


def oom_kills(root: Path = Path("/")) -> OomKills:
    """Read the kernel's counters; compare two readings to learn whether it killed a process in between."""
    groups = []
    for _, here, mount in _memory_groups(root):
        for folder in _up_to(here, mount):
            # Version 2 has the counter in the first file, version 1 in the second.
            groups += [_counter(folder / name, "oom_kill") for name in ("memory.events", "memory.oom_control")]
    known = [count for count in groups if count is not None]
    return OomKills(max(known, default=None), _counter(root / "proc/vmstat", "oom_kill"))


def _counter(path: Path, name: str) -> int | None:
    for line in _lines(path):
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _meminfo(path: Path) -> dict[str, int]:
    sizes = {}
    for line in _lines(path):
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            sizes[name] = int(words[0]) * KIB
    return sizes


def _cgroup(root: Path) -> tuple[int | None, int | None]:
    """The tightest limit from this process's group up to the root, with that group's use."""
    tightest: tuple[int | None, int | None] = (None, None)
    for version, here, mount in _memory_groups(root):
        limit_file, used_file = _CGROUP_FILES[version]
        for folder in _up_to(here, mount):
            limit = _number(folder / limit_file)
            if limit is not None and limit < _NO_LIMIT and (tightest[0] is None or limit < tightest[0]):
                tightest = (limit, _number(folder / used_file))
    return tightest


def _memory_groups(root: Path) -> Iterator[tuple[int, Path, Path]]:
    """This process's control groups that limit memory: their version, folder and mount point."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            version, mount = 2, root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            version, mount = 1, root / "sys/fs/cgroup/memory"
        else:
            continue
        yield version, mount / group.lstrip("/"), mount


def _up_to(here: Path, mount: Path) -> Iterator[Path]:
    for folder in (here, *here.parents):
        yield folder
        if folder == mount:
            return


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
