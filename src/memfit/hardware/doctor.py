"""Look at this machine the way TensorFlow will, and say what stands in the way."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from memfit.framework import (
    INSTALL_TENSORFLOW,
    TENSORFLOW_SUPPORTED,
    dotted,
    keras_complaint,
    tensorflow_complaint,
    version_key,
)
from memfit.hardware.compile_mode import AutoJit, auto_jit
from memfit.hardware.environment import EnvironmentEffect, environment_effects, is_on
from memfit.hardware.host import HostMemory, host_memory
from memfit.hardware.installation import Installation, package_of, read_installation
from memfit.hardware.nvml import NvmlReading, read_nvml
from memfit.hardware.probe import Probe, probe
from memfit.units import GIB, format_size

Severity = Literal["broken", "warning", "note"]

# A card with less than this free was meant to be shared, or somebody forgot a process on it.
_BUSY_SHARE = 0.1
_LITTLE_RAM = 2 * GIB
# cudaMallocAsync came with CUDA 11.2.
_ASYNC_SINCE = (11, 2)


@dataclass(frozen=True)
class Finding:
    """Something worth knowing, with the line to paste that mends it where there is one."""

    severity: Severity
    title: str
    why: str
    fix: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """As plain JSON values."""
        return {"severity": self.severity, "title": self.title, "why": self.why, "fix": self.fix}


@dataclass(frozen=True)
class Diagnosis:
    """Everything `memfit doctor` shows."""

    nvml: NvmlReading
    installation: Installation
    environment: tuple[EnvironmentEffect, ...]
    host: HostMemory
    auto_jit: AutoJit
    probe: Probe | None
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 fine, 1 findings, 3 broken environment."""
        severities = {finding.severity for finding in self.findings}
        return 3 if "broken" in severities else 1 if "warning" in severities else 0

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "nvml": self.nvml.to_dict(),
            "installation": self.installation.to_dict(),
            "environment": [effect.to_dict() for effect in self.environment],
            "host_memory": self.host.to_dict(),
            "auto_jit": {"value": self.auto_jit.value, "reason": self.auto_jit.reason},
            "probe": None if self.probe is None else self.probe.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
            "exit_code": self.exit_code,
        }


def diagnose(*, deep: bool = False, timeout: float = 60, environment: Mapping[str, str] = os.environ) -> Diagnosis:
    """Examine this machine. TensorFlow is imported only with `deep`, and then in a child process.

    Args:
        deep: Ask TensorFlow itself what it sees.
        timeout: Seconds the child process gets.
        environment: The environment variables to look at.
    """
    nvml = read_nvml()
    installation = read_installation(environment)
    asked = probe(timeout) if deep and installation.tensorflow else None
    effects = environment_effects(environment)
    host = host_memory()
    jit = _resolve_auto_jit(nvml, installation, asked, environment)
    findings = (
        *_about_installation(installation),
        *_about_gpus(nvml, installation, environment),
        *_about_probe(asked, nvml, installation),
        *_about_environment(effects, nvml, environment),
        *_about_host(host),
    )
    return Diagnosis(nvml, installation, effects, host, jit, asked, findings)


def _resolve_auto_jit(
    nvml: NvmlReading, installation: Installation, asked: Probe | None, environment: Mapping[str, str]
) -> AutoJit:
    if asked is not None and asked.auto_jit is not None:
        return AutoJit(asked.auto_jit, "TensorFlow was asked")
    gpu: bool | None
    if not nvml.driver_present or installation.cuda_build is False or _hidden(environment):
        gpu = False
    elif installation.cuda_build is None or (nvml.unavailable and not nvml.gpus):
        gpu = None
    else:
        gpu = bool(nvml.gpus) and not installation.missing_libraries
    return auto_jit(gpu=gpu, deterministic=is_on(environment, "TF_DETERMINISTIC_OPS"))


def _hidden(environment: Mapping[str, str]) -> bool:
    return environment.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


def _about_installation(installation: Installation) -> Iterator[Finding]:
    version = installation.tensorflow
    if version is None:
        yield Finding("broken", "TensorFlow is not installed", "Nothing can be trained.", INSTALL_TENSORFLOW)
        return
    newest = TENSORFLOW_SUPPORTED[1]
    if complaint := tensorflow_complaint(version):
        yield Finding("broken", "TensorFlow is too old", complaint, INSTALL_TENSORFLOW)
    elif version_key(version) > newest:
        why = f"memfit is tested with TensorFlow up to {dotted(newest)}; predictions may be off."
        yield Finding("note", f"TensorFlow {version} is newer than what memfit knows", why)
    if complaint := keras_complaint(installation.keras, installation.keras_backend):
        yield Finding("broken", "Keras cannot be used", complaint, _last_command(complaint))


def _last_command(complaint: str) -> str:
    return complaint.rpartition("with: ")[2]


def _about_gpus(nvml: NvmlReading, installation: Installation, environment: Mapping[str, str]) -> Iterator[Finding]:
    if not nvml.driver_present:
        return
    if nvml.unavailable:
        yield Finding("note", "GPU memory cannot be read", nvml.unavailable + ".", 'pip install "memfit[gpu]"')
    if installation.cuda_build is False:
        yield Finding(
            "warning",
            "there is a GPU, but this TensorFlow is a CPU build",
            f"{installation.distribution} {installation.tensorflow} cannot use it.",
            f'pip uninstall -y {installation.distribution} && pip install "memfit[cuda]"',
        )
    if installation.missing_libraries:
        packages = sorted({package_of(library) for library in installation.missing_libraries})
        yield Finding(
            "warning",
            f"TensorFlow will not see the GPU: {', '.join(installation.missing_libraries)} cannot be found",
            "It looks next to itself in site-packages/nvidia, in LD_LIBRARY_PATH and in the system's folders.",
            f"pip install {' '.join(packages)}",
        )
    if _hidden(environment):
        yield Finding(
            "warning",
            "CUDA_VISIBLE_DEVICES hides every GPU",
            "TensorFlow will train on the CPU.",
            "unset CUDA_VISIBLE_DEVICES",
        )
    for gpu in nvml.gpus:
        if gpu.total and gpu.used is not None and gpu.used > _BUSY_SHARE * gpu.total:
            known = [
                f"{process.name or 'a process'} (pid {process.pid}, {format_size(process.used)})"
                for process in gpu.processes or ()
            ]
            holders = ", ".join(known) if known else "processes that cannot be seen from here"
            yield Finding(
                "warning",
                f"GPU {gpu.index} has only {format_size(gpu.free)} of {format_size(gpu.total)} free",
                f"In use by {holders}.",
                "nvidia-smi   # and end what is not needed",
            )


def _about_probe(asked: Probe | None, nvml: NvmlReading, installation: Installation) -> Iterator[Finding]:
    if asked is None:
        return
    if asked.error:
        yield Finding("broken", "TensorFlow does not start", asked.error)
    elif nvml.driver_present and installation.cuda_build and not asked.gpus and not installation.missing_libraries:
        yield Finding("warning", "TensorFlow sees no GPU", " ".join(asked.log) or "It gave no reason.")


def _about_environment(
    effects: tuple[EnvironmentEffect, ...], nvml: NvmlReading, environment: Mapping[str, str]
) -> Iterator[Finding]:
    for effect in effects:
        if not effect.valid:
            why = f"{effect.value!r} is {effect.effect}; it is ignored or stops TensorFlow."
            yield Finding("warning", f"{effect.name} has no usable value", why, f"unset {effect.name}")
    growth = is_on(environment, "TF_FORCE_GPU_ALLOW_GROWTH")
    asynchronous = environment.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async"
    if growth and environment.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() == "false":
        yield Finding(
            "warning",
            "memory growth is asked for twice, once in JAX's way",
            "XLA_PYTHON_CLIENT_PREALLOCATE does nothing in TensorFlow; TF_FORCE_GPU_ALLOW_GROWTH does it.",
            "unset XLA_PYTHON_CLIENT_PREALLOCATE",
        )
    if growth and asynchronous:
        yield Finding(
            "warning",
            "memory growth is asked for twice, by TF_FORCE_GPU_ALLOW_GROWTH and by cuda_malloc_async",
            "The driver's allocator grows on demand anyway; BFC growth settings do not reach it.",
            "unset TF_FORCE_GPU_ALLOW_GROWTH",
        )
    if "TF_PER_DEVICE_MEMORY_LIMIT_MB" in environment:
        both = "memory growth is on and " if growth else ""
        yield Finding(
            "warning",
            f"{both}TF_PER_DEVICE_MEMORY_LIMIT_MB limits nothing",
            "TensorFlow's allocator does not read it. Set a limit in the script: memfit.devices.configure(limit=...).",
            "unset TF_PER_DEVICE_MEMORY_LIMIT_MB",
        )
    if asynchronous and nvml.cuda_driver is not None and nvml.cuda_driver < _ASYNC_SINCE:
        yield Finding(
            "warning",
            f"cuda_malloc_async needs CUDA 11.2, and this driver has {dotted(nvml.cuda_driver)}",
            "TensorFlow will stop when it creates the GPU device.",
            "unset TF_GPU_ALLOCATOR",
        )
    if is_on(environment, "TF_FORCE_UNIFIED_MEMORY"):
        yield Finding(
            "warning",
            "TF_FORCE_UNIFIED_MEMORY lets tensors spill to host RAM",
            "A job that does not fit then runs up to 100 times slower instead of failing.",
            "unset TF_FORCE_UNIFIED_MEMORY",
        )
    if "TF_CPU_BFC_MEM_LIMIT_IN_MB" in environment and not is_on(environment, "TF_CPU_ALLOCATOR_USE_BFC"):
        yield Finding(
            "warning",
            "TF_CPU_BFC_MEM_LIMIT_IN_MB limits nothing",
            "It counts only together with TF_CPU_ALLOCATOR_USE_BFC=1.",
            "export TF_CPU_ALLOCATOR_USE_BFC=1",
        )
    if is_on(environment, "TF_USE_LEGACY_KERAS"):
        yield Finding(
            "broken",
            "TF_USE_LEGACY_KERAS turns tf.keras into Keras 2",
            "memfit works with Keras 3 only.",
            "unset TF_USE_LEGACY_KERAS",
        )


def _about_host(host: HostMemory) -> Iterator[Finding]:
    if host.usable is not None and host.usable < _LITTLE_RAM:
        yield Finding(
            "warning",
            f"only {format_size(host.usable)} of host RAM is left",
            "TensorFlow alone takes about 1 GiB before the first batch is read.",
        )
    if host.cgroup_limit is not None and host.total is not None and host.cgroup_limit < host.total:
        yield Finding(
            "note",
            f"this process may use {format_size(host.cgroup_limit)} of the machine's {format_size(host.total)} RAM",
            "A control group (container, job scheduler) limits it; above that the kernel kills the process.",
        )
