"""NVIDIA's own view of the GPUs: memory, processes, driver. Anything it does not tell is `None`."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class GpuProcess:
    """A process with memory on a GPU."""

    pid: int
    name: str | None
    used: int | None

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {"pid": self.pid, "name": self.name, "used_bytes": self.used}


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment."""

    index: int
    name: str
    total: int | None
    used: int | None
    free: int | None
    compute_capability: tuple[int, int] | None
    processes: tuple[GpuProcess, ...] | None

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        capability = self.compute_capability
        return {
            "index": self.index,
            "name": self.name,
            "total_bytes": self.total,
            "used_bytes": self.used,
            "free_bytes": self.free,
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
            "processes": None if self.processes is None else [each.to_dict() for each in self.processes],
        }


@dataclass(frozen=True)
class NvmlReading:
    """What NVML told, or in `unavailable` why it told nothing."""

    gpus: tuple[GpuReading, ...] = ()
    driver: str | None = None
    cuda_driver: tuple[int, int] | None = None
    unavailable: str | None = None
    driver_present: bool = False
    """Whether an NVIDIA kernel driver is loaded, whatever NVML says."""

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        cuda = self.cuda_driver
        return {
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "driver": self.driver,
            "cuda_driver": None if cuda is None else f"{cuda[0]}.{cuda[1]}",
            "unavailable": self.unavailable,
        }


def read_nvml(driver_files: Path = Path("/proc/driver/nvidia")) -> NvmlReading:
    """Ask NVML for every GPU; never raises."""
    present = driver_files.exists()
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return NvmlReading(
            unavailable='nvidia-ml-py is not installed (pip install "memfit[gpu]")', driver_present=present
        )
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return NvmlReading(unavailable=f"NVML does not start: {error}", driver_present=present)
    try:
        cuda = _told(nvml, nvml.nvmlSystemGetCudaDriverVersion)
        count = _told(nvml, nvml.nvmlDeviceGetCount) or 0
        return NvmlReading(
            gpus=tuple(_read_gpu(nvml, index) for index in range(count)),
            driver=_text(_told(nvml, nvml.nvmlSystemGetDriverVersion)),
            cuda_driver=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
            driver_present=True,
        )
    finally:
        nvml.nvmlShutdown()


def _read_gpu(nvml: ModuleType, index: int) -> GpuReading:
    handle = _told(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return GpuReading(index, "unknown", None, None, None, None, None)
    memory = _told(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    running = _told(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    capability = _told(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return GpuReading(
        index=index,
        name=_text(_told(nvml, nvml.nvmlDeviceGetName, handle)) or "unknown",
        total=memory and int(memory.total),
        used=memory and int(memory.used),
        free=memory and int(memory.free),
        compute_capability=capability and (int(capability[0]), int(capability[1])),
        processes=None if running is None else tuple(_read_process(nvml, each) for each in running),
    )


def _read_process(nvml: ModuleType, process: Any) -> GpuProcess:
    name = _text(_told(nvml, nvml.nvmlSystemGetProcessName, process.pid))
    return GpuProcess(process.pid, name, process.usedGpuMemory)


def _told(nvml: ModuleType, question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or `None` where this driver, card or container does not give it."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes | None) -> str | None:
    """Older bindings answer in bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
