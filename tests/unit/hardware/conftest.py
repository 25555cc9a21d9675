"""A fake NVML: the functions memfit calls, answering for made-up GPUs."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from memfit.units import GIB


class NVMLError(Exception):
    pass


@pytest.fixture
def fake_nvml(monkeypatch):
    """Install a fake `pynvml`; tests change its attributes to make it answer differently."""

    def not_supported(*_):
        raise NVMLError("Not Supported")

    module = ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.not_supported = not_supported
    module.nvmlInit = module.nvmlShutdown = lambda: None
    module.nvmlSystemGetDriverVersion = lambda: "580.95.05"
    module.nvmlSystemGetCudaDriverVersion = lambda: 13000
    module.nvmlDeviceGetCount = lambda: 1
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetName = lambda _: "NVIDIA GeForce RTX 3060"
    module.nvmlDeviceGetMemoryInfo = lambda _: SimpleNamespace(total=12 * GIB, used=9 * GIB, free=3 * GIB)
    module.nvmlDeviceGetCudaComputeCapability = lambda _: (8, 6)
    module.nvmlDeviceGetComputeRunningProcesses = lambda _: [SimpleNamespace(pid=4242, usedGpuMemory=8 * GIB)]
    module.nvmlSystemGetProcessName = lambda _: "python train.py"
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


@pytest.fixture
def no_nvml(monkeypatch):
    """Make `import pynvml` fail, as where nvidia-ml-py is not installed."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
