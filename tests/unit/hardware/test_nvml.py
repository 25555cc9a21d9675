from types import SimpleNamespace

from memfit.hardware.nvml import GpuProcess, read_nvml
from memfit.units import GIB


def test_gpus_driver_and_who_uses_the_memory(fake_nvml):
    reading = read_nvml()
    (gpu,) = reading.gpus
    assert (reading.driver, reading.cuda_driver, reading.unavailable) == ("580.95.05", (13, 0), None)
    assert (gpu.name, gpu.total, gpu.used, gpu.free) == ("NVIDIA GeForce RTX 3060", 12 * GIB, 9 * GIB, 3 * GIB)
    assert gpu.processes == (GpuProcess(4242, "python train.py", 8 * GIB),)


def test_what_the_card_does_not_tell_is_unknown_and_not_zero(fake_nvml):
    fake_nvml.nvmlDeviceGetMemoryInfo = fake_nvml.not_supported
    fake_nvml.nvmlDeviceGetComputeRunningProcesses = fake_nvml.not_supported
    (gpu,) = read_nvml().gpus
    assert (gpu.total, gpu.used, gpu.free, gpu.processes) == (None, None, None, None)
    assert gpu.to_dict()["used_bytes"] is None


def test_a_process_whose_memory_is_hidden_is_unknown(fake_nvml):
    fake_nvml.nvmlDeviceGetComputeRunningProcesses = lambda _: [SimpleNamespace(pid=7, usedGpuMemory=None)]
    fake_nvml.nvmlSystemGetProcessName = fake_nvml.not_supported
    (gpu,) = read_nvml().gpus
    assert gpu.processes == (GpuProcess(7, None, None),)


def test_bytes_from_older_bindings_become_text(fake_nvml):
    fake_nvml.nvmlDeviceGetName = lambda _: b"Tesla T4"
    assert read_nvml().gpus[0].name == "Tesla T4"


def test_a_driver_that_does_not_start_is_told(fake_nvml, tmp_path):
    fake_nvml.nvmlInit = fake_nvml.not_supported
    reading = read_nvml(tmp_path)
    assert reading.gpus == ()
    assert reading.driver_present
    assert "Not Supported" in reading.unavailable


def test_without_the_bindings_it_says_what_to_install(no_nvml, tmp_path):
    reading = read_nvml(tmp_path / "missing")
    assert not reading.driver_present
    assert "memfit[gpu]" in reading.unavailable
