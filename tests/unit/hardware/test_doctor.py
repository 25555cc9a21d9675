import dataclasses

import pytest

from memfit.hardware import doctor
from memfit.hardware.doctor import diagnose
from memfit.hardware.host import HostMemory
from memfit.hardware.installation import Installation
from memfit.hardware.probe import Probe
from memfit.units import GIB

CPU_BUILD = Installation("tensorflow-cpu", "2.21.0", "3.15.1", "tensorflow", False, None, None, None)
GPU_BUILD = Installation("tensorflow", "2.21.0", "3.15.1", "tensorflow", True, "12.5.1", "9", ())
ROOMY = HostMemory(64 * GIB, 60 * GIB, None, None)


@pytest.fixture
def machine(monkeypatch):
    """A machine to examine: its installation, host memory and what TensorFlow answers when asked."""

    def examine(installation=GPU_BUILD, host=ROOMY, probe=None, **environment):
        monkeypatch.setattr(doctor, "read_installation", lambda _: installation)
        monkeypatch.setattr(doctor, "host_memory", lambda: host)
        monkeypatch.setattr(doctor, "probe", lambda _: probe)
        return diagnose(deep=probe is not None, environment=environment)

    return examine


@pytest.fixture
def idle_gpu(fake_nvml):
    idle = dataclasses.make_dataclass("Memory", ["total", "used", "free"])(12 * GIB, 0, 12 * GIB)
    fake_nvml.nvmlDeviceGetMemoryInfo = lambda _: idle
    fake_nvml.nvmlDeviceGetComputeRunningProcesses = lambda _: []
    return fake_nvml


@pytest.fixture
def no_gpu(fake_nvml, monkeypatch):
    fake_nvml.nvmlInit = fake_nvml.not_supported
    read = doctor.read_nvml
    monkeypatch.setattr(doctor, "read_nvml", lambda: dataclasses.replace(read(), driver_present=False))


def titles(diagnosis):
    return " | ".join(finding.title for finding in diagnosis.findings)


def test_a_good_gpu_machine_has_no_findings(machine, idle_gpu):
    diagnosis = machine()
    assert (diagnosis.findings, diagnosis.exit_code) == ((), 0)
    assert diagnosis.auto_jit.value is True


def test_a_laptop_without_a_gpu_is_fine_too(machine, no_gpu):
    diagnosis = machine(installation=CPU_BUILD)
    assert (diagnosis.findings, diagnosis.exit_code) == ((), 0)
    assert diagnosis.auto_jit.value is False


def test_a_busy_card_names_who_holds_the_memory(machine, fake_nvml):
    (finding,) = machine().findings
    assert "only 3 GiB of 12 GiB free" in finding.title
    assert "python train.py (pid 4242, 8 GiB)" in finding.why


def test_a_cpu_build_beside_a_gpu_is_a_finding_with_the_line_to_paste(machine, idle_gpu):
    diagnosis = machine(installation=CPU_BUILD)
    (finding,) = diagnosis.findings
    assert "CPU build" in finding.title
    assert finding.fix == 'pip uninstall -y tensorflow-cpu && pip install "memfit[cuda]"'
    assert diagnosis.exit_code == 1
    assert diagnosis.auto_jit.value is False


def test_missing_libraries_are_named_with_the_packages_that_bring_them(machine, idle_gpu):
    diagnosis = machine(installation=dataclasses.replace(GPU_BUILD, missing_libraries=("libcudnn.so.9",)))
    (finding,) = diagnosis.findings
    assert "libcudnn.so.9" in finding.title
    assert finding.fix == "pip install nvidia-cudnn-cu12"
    assert diagnosis.auto_jit.value is False


@pytest.mark.parametrize(
    ("installation", "says"),
    [
        (Installation(None, None, None, "tensorflow", None, None, None, None), "not installed"),
        (dataclasses.replace(CPU_BUILD, tensorflow="2.10.1"), "too old"),
        (dataclasses.replace(CPU_BUILD, keras="2.15.0"), "Keras cannot be used"),
        (dataclasses.replace(CPU_BUILD, keras_backend="jax"), "Keras cannot be used"),
    ],
)
def test_an_environment_that_cannot_train_is_broken(machine, no_gpu, installation, says):
    diagnosis = machine(installation=installation)
    assert says in titles(diagnosis)
    assert diagnosis.exit_code == 3
    assert all(finding.fix for finding in diagnosis.findings)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, "hides every GPU"),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, "asked for twice"),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": "cuda_malloc_async"}, "asked for twice"),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "1", "TF_PER_DEVICE_MEMORY_LIMIT_MB": "4096"}, "growth is on and"),
        ({"TF_FORCE_UNIFIED_MEMORY": "1"}, "spill to host RAM"),
        ({"TF_CPU_BFC_MEM_LIMIT_IN_MB": "512"}, "limits nothing"),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "on"}, "no usable value"),
    ],
)
def test_settings_that_contradict_or_hurt_are_findings(machine, idle_gpu, environment, says):
    diagnosis = machine(**environment)
    assert says in titles(diagnosis)
    assert diagnosis.exit_code == 1


def test_the_driver_allocator_on_an_old_driver_is_a_finding(machine, idle_gpu):
    idle_gpu.nvmlSystemGetCudaDriverVersion = lambda: 11010
    assert "this driver has 11.1" in titles(machine(TF_GPU_ALLOCATOR="cuda_malloc_async"))


def test_growth_alone_is_explained_but_no_finding(machine, idle_gpu):
    diagnosis = machine(TF_FORCE_GPU_ALLOW_GROWTH="true")
    assert diagnosis.findings == ()
    assert [effect.name for effect in diagnosis.environment] == ["TF_FORCE_GPU_ALLOW_GROWTH"]


def test_determinism_turns_auto_jit_off(machine, idle_gpu):
    assert machine(TF_DETERMINISTIC_OPS="1").auto_jit.value is False


def test_little_host_memory_and_a_container_limit_are_said(machine, idle_gpu):
    diagnosis = machine(host=HostMemory(64 * GIB, 60 * GIB, 4 * GIB, 3 * GIB))
    assert "only 1 GiB of host RAM" in titles(diagnosis)
    assert "may use 4 GiB of the machine's 64 GiB" in titles(diagnosis)


def test_tensorflow_is_believed_when_it_was_asked(machine, idle_gpu):
    blind = machine(probe=Probe(gpus=(), auto_jit=False, log=("Cannot dlopen some GPU libraries.",)))
    assert "TensorFlow sees no GPU" in titles(blind)
    assert "dlopen" in blind.findings[-1].why
    assert blind.auto_jit.value is False


def test_a_tensorflow_that_does_not_start_is_broken(machine, idle_gpu):
    diagnosis = machine(probe=Probe(error="TensorFlow did not answer within 60 s"))
    assert diagnosis.exit_code == 3


def test_without_nvml_nothing_is_claimed_about_the_gpu(machine, no_nvml, monkeypatch):
    read = doctor.read_nvml
    monkeypatch.setattr(doctor, "read_nvml", lambda: dataclasses.replace(read(), driver_present=True))
    diagnosis = machine()
    assert diagnosis.auto_jit.value is None
    assert diagnosis.exit_code == 0
    assert "cannot be read" in titles(diagnosis)
