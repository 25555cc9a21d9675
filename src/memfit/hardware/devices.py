"""Set the devices up before TensorFlow does, and read how much memory they use.

On a machine without a GPU, `limit` and `split` act on the CPU through TensorFlow's own BFC allocator: the same
allocator, the same statistics and the same `ResourceExhaustedError` as on a GPU. oneDNN's kernels are turned off
then (see `memfit.hardware.onednn`).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from memfit.errors import ConfigurationError, InputError, TooLateError, UnknownGpuError
from memfit.framework import tensorflow
from memfit.hardware import onednn, scratch
from memfit.hardware.catalog import find_gpu
from memfit.hardware.host import host_memory
from memfit.units import MIB, Size, format_size, parse_size

Allocator = Literal["bfc", "cuda_malloc_async"]
_ALLOCATORS = ("bfc", "cuda_malloc_async")

# Read by TensorFlow when it creates its devices, not when it is imported (process_state.cc, gpu_process_state.cc).
_CPU_USE_BFC, _CPU_LIMIT = "TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_GPU_ALLOCATOR = "TF_GPU_ALLOCATOR"
_FORCED_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"


@dataclass(frozen=True)
class Configuration:
    """What `configure` set up."""

    device_type: Literal["GPU", "CPU"]
    devices: tuple[str, ...]
    """The logical devices there will be, such as `("GPU:0", "GPU:1")`."""
    applied: tuple[str, ...]
    """What was set, a sentence each."""
    ignored: tuple[str, ...]
    """What has no effect on this machine, and why."""

    def __str__(self) -> str:
        lines = [f"memory of {', '.join(self.devices) or 'no device'}"]
        lines += [f"  set      {each}" for each in self.applied]
        lines += [f"  ignored  {each}" for each in self.ignored]
        return "\n".join(lines)


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of one device: in use now, the most since the last reset, and the configured limit."""

    device: str
    current: int
    peak: int
    limit: int | None
    """`None` where no limit was configured."""

    def __str__(self) -> str:
        limit = "none" if self.limit is None else format_size(self.limit)
        return f"{self.device}: {format_size(self.current)} in use, {format_size(self.peak)} peak, limit {limit}"

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "device": self.device,
            "current_bytes": self.current,
            "peak_bytes": self.peak,
            "limit_bytes": self.limit,
        }


# TensorFlow's devices are the process's, and so is this: empty, or the one configuration.
_configured: list[Configuration] = []


def configure(
    *,
    growth: bool = False,
    limit: Size | None = None,
    split: Sequence[Size] | None = None,
    allocator: Allocator | None = None,
    workspace: Size | None = None,
    visible: Sequence[int] | None = None,
) -> Configuration:
    """Decide how TensorFlow takes device memory. Call it once, before anything else uses TensorFlow.

    Args:
        growth: Take memory when it is needed instead of all at once. What autotuning takes on the first step is
            never given back; where you know what the job needs, a `limit` is the better choice.
        limit: The most each visible device may use. Without a GPU it limits the CPU, and sets
            `TF_ENABLE_ONEDNN_OPTS=0` unless you set that variable: oneDNN's kernels crash where others report that
            memory ran out. TensorFlow reads the variable when it is imported, so call `configure` before that.
        split: The sizes of several logical devices on each visible device. Without a GPU the logical CPUs share
            one pool of the summed size.
        allocator: `"bfc"` (TensorFlow's default) or `"cuda_malloc_async"` (the driver's; less fragmentation).
        workspace: The most scratch memory one cuDNN convolution may ask for (TensorFlow's default: 8 GiB).
        visible: Which GPUs to use, by index; `[]` hides them all.

    Returns:
        What was set, and what has no effect on this machine.

    Raises:
        TooLateError: If TensorFlow has already set its devices up.
        ConfigurationError: If the settings contradict each other or ask for more than there is.
        SizeError: If a size is not valid.

    Example:
        ```python
        import memfit

        memfit.devices.configure(limit="4GiB")
        ```
    """
    settings = _checked(growth, limit, split, allocator, workspace)
    users_choice = onednn.VARIABLE in os.environ
    if settings.total is not None:
        onednn.turn_off(visible)
    tf = tensorflow()
    _refuse_if_too_late()
    gpus = _chosen_gpus(tf, visible)
    _refuse_what_the_script_set(tf, gpus, settings)
    device_type: Literal["GPU", "CPU"] = "GPU" if gpus else "CPU"
    for gpu in gpus:
        _refuse_more_than_there_is(settings.total, _card_memory(tf, gpu), f"{_card_name(tf, gpu)} has")
    if not gpus:
        _refuse_more_than_there_is(settings.total, host_memory().ceiling, "this process has, without a GPU,")

    # Everything is checked; from here on nothing is refused.
    applied: list[str] = []
    ignored: list[str] = []
    if visible is not None:
        tf.config.set_visible_devices(gpus, "GPU")
        if gpus or not visible:
            applied.append(f"visible GPUs: {', '.join(map(str, visible)) or 'none'}")
        else:
            ignored.append("visible: this machine has no GPU")
    if gpus:
        _apply_to_gpus(tf, gpus, settings, applied)
    else:
        _apply_to_cpu(tf, settings, applied, ignored)
        if settings.total is not None and not users_choice:
            _say_onednn(applied, ignored)
    count = max(1, len(settings.split)) * max(1, len(gpus))
    devices = tuple(f"{device_type}:{index}" for index in range(count))
    _configured.append(Configuration(device_type, devices, tuple(applied), tuple(ignored)))
    return _configured[0]


def memory() -> tuple[DeviceMemory, ...]:
    """Read the memory of every device TensorFlow computes on: the GPUs, or without one the CPU.

    Reading makes TensorFlow set its devices up, so call `configure` first if you call it at all.

    Returns:
        One entry per logical device. Logical CPUs share one pool, and each shows the whole of it.
    """
    tf = tensorflow()
    readings = []
    for name, limit in _logical_devices(tf):
        info = tf.config.experimental.get_memory_info(name)
        readings.append(DeviceMemory(name, int(info["current"]), int(info["peak"]), limit))
    return tuple(readings)


def reset_peak() -> None:
    """Start a new peak on every device from what is in use now."""
    tf = tensorflow()
    for name, _ in _logical_devices(tf):
        tf.config.experimental.reset_memory_stats(name)


@dataclass(frozen=True)
class _Settings:
    growth: bool
    limit: int | None
    split: tuple[int, ...]
    allocator: str | None
    workspace: int | None

    @property
    def total(self) -> int | None:
        """The bytes asked for on each physical device."""
        return sum(self.split) if self.split else self.limit


def _checked(
    growth: bool, limit: Size | None, split: Sequence[Size] | None, allocator: str | None, workspace: Size | None
) -> _Settings:
    if isinstance(split, str | int):
        raise ConfigurationError(
            f'split={split!r} is one size; give one size per logical device, such as split=["2GiB", "2GiB"].'
        )
    if split is not None and not split:
        raise ConfigurationError('split=[] has no sizes; give one per logical device, such as ["2GiB", "2GiB"].')
    if limit is not None and split:
        raise ConfigurationError(
            f"limit={limit!r} and split={list(split)!r} contradict each other: each part of a split has its own "
            "limit. Leave one of them out."
        )
    if growth and (limit is not None or split):
        other = f"split={list(split)!r}" if split else f"limit={limit!r}"
        raise ConfigurationError(
            f"growth=True and {other} contradict each other: TensorFlow takes a limited device's memory at once. "
            "Leave one of them out; a limit is the safer choice when you know what the job needs."
        )
    if allocator is not None and allocator not in _ALLOCATORS:
        raise ConfigurationError(f"allocator={allocator!r} is not one of {', '.join(map(repr, _ALLOCATORS))}.")
    if allocator == "cuda_malloc_async" and (limit is not None or split):
        # GpuCudaMallocAsyncAllocator takes the size as a release threshold of the pool, not as a bound.
        raise ConfigurationError(
            'allocator="cuda_malloc_async" does not keep to a limit or a split. Use allocator="bfc", or drop the limit.'
        )
    forced = os.environ.get(_FORCED_GROWTH, "").lower()
    if growth and forced == "false":
        raise ConfigurationError(
            f"growth=True is overruled by {_FORCED_GROWTH}={os.environ[_FORCED_GROWTH]} in the environment. "
            f"Remove it with: unset {_FORCED_GROWTH}"
        )
    return _Settings(
        growth,
        None if limit is None else _whole_mib(limit, "limit"),
        tuple(_whole_mib(each, "split") for each in split or ()),
        allocator,
        None if workspace is None else _whole_mib(workspace, "workspace"),
    )


def _whole_mib(size: Size, what: str) -> int:
    """TensorFlow takes these sizes in whole MiB."""
    size_bytes = parse_size(size, what=what)
    if size_bytes < MIB:
        raise InputError(f"{what} {size!r} is less than 1 MiB, the smallest step TensorFlow knows.")
    return size_bytes // MIB * MIB


def _refuse_if_too_late() -> None:
    if _configured:
        raise ConfigurationError(
            "memfit.devices.configure(...) was already called in this process. Put everything into that one call."
        )
    # The public setters are silent when nothing changes, so ask what they ask.
    context = import_module("tensorflow.python.eager.context").context()
    if context._context_handle is not None:
        raise TooLateError(
            "TensorFlow has already set its devices up, because something created a tensor, a variable or a model "
            "before this call. Call memfit.devices.configure(...) at the top of the script, before that."
        )


def _refuse_what_the_script_set(tf: Any, gpus: Sequence[Any], settings: _Settings) -> None:
    for gpu in gpus:
        if settings.total is not None and tf.config.experimental.get_memory_growth(gpu):
            raise ConfigurationError(
                f"memory growth is already set for {gpu.name}, and a limit contradicts it. "
                "Remove the set_memory_growth call, or configure growth=True without a limit."
            )
        if settings.growth and tf.config.get_logical_device_configuration(gpu):
            raise ConfigurationError(
                f"logical devices with a limit are already set for {gpu.name}, and growth=True contradicts that. "
                "Remove the set_logical_device_configuration call, or leave growth out."
            )


def _chosen_gpus(tf: Any, visible: Sequence[int] | None) -> list[Any]:
    there = tf.config.list_physical_devices("GPU")
    if visible is None:
        return [gpu for gpu in there if gpu in tf.config.get_visible_devices("GPU")]
    bad = [index for index in visible if isinstance(index, bool) or not isinstance(index, int) or index < 0]
    if bad:
        raise ConfigurationError(f"visible={list(visible)!r} must hold GPU indices such as [0]; got {bad[0]!r}.")
    if there and (missing := [index for index in visible if index >= len(there)]):
        raise ConfigurationError(
            f"visible={list(visible)!r} asks for GPU {missing[0]}, but TensorFlow sees "
            f"{len(there)} (0 to {len(there) - 1})."
        )
    return [there[index] for index in visible] if there else []


def _refuse_more_than_there_is(asked: int | None, there: int | None, owner: str) -> None:
    if asked is not None and there is not None and asked > there:
        raise ConfigurationError(
            f"{format_size(asked)} is more memory than {owner} ({format_size(there)}). Ask for less."
        )


def _card_name(tf: Any, gpu: Any) -> str:
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))


def _card_memory(tf: Any, gpu: Any) -> int | None:
    try:
        return find_gpu(_card_name(tf, gpu)).memory
    except UnknownGpuError:
        return None


def _apply_to_gpus(tf: Any, gpus: Sequence[Any], settings: _Settings, applied: list[str]) -> None:
    for gpu in gpus:
        if settings.growth:
            tf.config.experimental.set_memory_growth(gpu, True)
        sizes = settings.split or ((settings.limit,) if settings.limit else ())
        if sizes:
            logical = [tf.config.LogicalDeviceConfiguration(memory_limit=size // MIB) for size in sizes]
            tf.config.set_logical_device_configuration(gpu, logical)
    if settings.growth:
        applied.append("memory grows on demand")
    _say_sizes(settings, applied, "each GPU")
    if settings.allocator is not None:
        os.environ[_GPU_ALLOCATOR] = "" if settings.allocator == "bfc" else settings.allocator
        applied.append(f"allocator {settings.allocator}")
    if settings.workspace is not None:
        os.environ[scratch.CAP] = str(settings.workspace // MIB)
        applied.append(f"at most {format_size(settings.workspace)} of scratch per cuDNN convolution")
    # What XLA's autotuning takes for them stays taken under growth, and stands still under a limit.
    scratch.leave_fft_kernels_out()


def _apply_to_cpu(tf: Any, settings: _Settings, applied: list[str], ignored: list[str]) -> None:
    if settings.total is not None:
        os.environ[_CPU_USE_BFC] = "1"
        os.environ[_CPU_LIMIT] = str(settings.total // MIB)
    if settings.split:
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration() for _ in settings.split]
        tf.config.set_logical_device_configuration(cpu, logical)
    _say_sizes(settings, applied, "the CPU, through TensorFlow's BFC allocator")
    if settings.growth:
        ignored.append("growth: without a GPU memory always grows on demand")
    if settings.allocator is not None:
        ignored.append(f"allocator {settings.allocator}: it is the GPU's")
    if settings.workspace is not None:
        ignored.append("workspace: only cuDNN, on a GPU, has one")


def _say_onednn(applied: list[str], ignored: list[str]) -> None:
    if onednn.VARIABLE in os.environ:
        applied.append("no oneDNN kernels, which crash when memory runs out")
    else:
        ignored.append(
            "no oneDNN kernels: TensorFlow is already imported. They may crash when memory runs out; call "
            f"memfit.devices.configure(...) before the import, or set {onednn.VARIABLE}=0"
        )


def _say_sizes(settings: _Settings, applied: list[str], device: str) -> None:
    if settings.split:
        applied.append(f"{' + '.join(format_size(size) for size in settings.split)} on {device}")
    elif settings.limit is not None:
        applied.append(f"at most {format_size(settings.limit)} on {device}")


def _logical_devices(tf: Any) -> list[tuple[str, int | None]]:
    """Names and configured limits of the devices that compute, in TensorFlow's order."""
    names = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices("GPU")]
    if not names:
        limit = _cpu_limit(os.environ)
        cpus = tf.config.list_logical_devices("CPU")
        return [(device.name.removeprefix("/device:"), limit) for device in cpus]
    limits: list[int | None] = []
    for gpu in tf.config.get_visible_devices("GPU"):
        configured = tf.config.get_logical_device_configuration(gpu) or [None]
        limits += [each and each.memory_limit and int(each.memory_limit * MIB) for each in configured]
    return list(zip(names, limits, strict=True))


def _cpu_limit(environment: Mapping[str, str]) -> int | None:
    if environment.get(_CPU_USE_BFC, "0").lower() not in ("1", "true"):
        return None
    limit = environment.get(_CPU_LIMIT, "")
    return int(limit) * MIB if limit.isdigit() else None
