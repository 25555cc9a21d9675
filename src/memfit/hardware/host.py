"""Host memory: what the machine has and what this process may use of it (Linux; elsewhere unknown)."""

from dataclasses import dataclass
from pathlib import Path

from memfit.units import KIB

# Version 1 of cgroups writes "no limit" as a number near 2^63.
_NO_LIMIT = 2**60


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


def host_memory(root: Path = Path("/")) -> HostMemory:
    """Read the machine's memory and the limits of the control groups this process is in."""
    meminfo = _meminfo(root / "proc/meminfo")
    limit, used = _cgroup(root)
    return HostMemory(meminfo.get("MemTotal"), meminfo.get("MemAvailable"), limit, used)


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
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mount, limit_file, used_file = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            limit_file, used_file = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        here = mount / group.lstrip("/")
        for folder in (here, *here.parents):
            limit = _number(folder / limit_file)
            if limit is not None and limit < _NO_LIMIT and (tightest[0] is None or limit < tightest[0]):
                tightest = (limit, _number(folder / used_file))
            if folder == mount:
                break
    return tightest


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
