"""Environment variables that change how TensorFlow uses memory: what each does at the value it has."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memfit.units import MIB, format_size

_TRUE, _FALSE = ("1", "true"), ("0", "false")


@dataclass(frozen=True)
class EnvironmentEffect:
    """A variable that is set, and what it does."""

    name: str
    value: str
    effect: str
    valid: bool = True

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {"name": self.name, "value": self.value, "effect": self.effect, "valid": self.valid}


def environment_effects(environment: Mapping[str, str]) -> tuple[EnvironmentEffect, ...]:
    """Explain every memory-related variable that is set, in the order of the table."""
    effects = []
    for name, explain in _VARIABLES.items():
        if name not in environment:
            continue
        value = environment[name]
        effect = explain(value)
        if effect is None:
            effects.append(EnvironmentEffect(name, value, "not a value TensorFlow understands", valid=False))
        else:
            effects.append(EnvironmentEffect(name, value, effect))
    return tuple(effects)


def is_on(environment: Mapping[str, str], name: str) -> bool:
    """Whether a yes/no variable is set to yes."""
    return environment.get(name, "").lower() in _TRUE


_Explain = Callable[[str], str | None]


def _switch(on: str, off: str) -> _Explain:
    def explain(value: str) -> str | None:
        return on if value.lower() in _TRUE else off if value.lower() in _FALSE else None

    return explain


def _mebibytes(text: str) -> _Explain:
    def explain(value: str) -> str | None:
        return text.format(format_size(int(value) * MIB)) if re.fullmatch(r"\d+", value) else None

    return explain


def _visible_devices(value: str) -> str | None:
    if value.strip() in ("", "-1"):
        return "hides every GPU"
    return f"TensorFlow sees only GPU {value}, numbered from 0"


def _gpu_allocator(value: str) -> str | None:
    return {
        "": "TensorFlow's BFC allocator (the default)",
        "cuda_malloc_async": "the driver's allocator: less fragmentation; memory limits are not kept to",
        "cuda_malloc": "plain cudaMalloc for every tensor: slow, for debugging",
        "memory_guard": "guards around every tensor: slow, for debugging",
    }.get(value)


def _tf_xla_flags(value: str) -> str | None:
    if re.search(r"--tf_xla_auto_jit=[12]", value):
        return "compiles parts of every graph with XLA, also with jit_compile=False; the peak changes"
    return "passed to TensorFlow's XLA bridge"


def _xla_flags(value: str) -> str | None:
    if "--xla_gpu_autotune_level=0" in value:
        return "turns XLA's autotuning off: no autotuning peak, but convolutions can become very slow"
    return "passed to the XLA compiler"


def _keras_backend(value: str) -> str | None:
    return "the Keras backend" if value == "tensorflow" else f"Keras runs on {value}, not on TensorFlow"


# Read in the source of TensorFlow 2.21; the defaults named are its defaults.
_VARIABLES: dict[str, _Explain] = {
    "CUDA_VISIBLE_DEVICES": _visible_devices,
    "TF_FORCE_GPU_ALLOW_GROWTH": _switch(
        "memory grows on demand on every GPU, whatever the script says; limits in the script become ceilings",
        "memory is taken at once, whatever the script says about growth",
    ),
    "TF_GPU_ALLOCATOR": _gpu_allocator,
    "TF_FORCE_UNIFIED_MEMORY": _switch(
        "tensors may spill to host RAM instead of failing: up to 100 times slower there", "no effect"
    ),
    # Tried on an H200 with 2048: 25 GiB were allocated all the same.
    "TF_PER_DEVICE_MEMORY_LIMIT_MB": lambda _: "limits nothing in TensorFlow 2.18 and later",
    "TF_DEVICE_MIN_SYS_MEMORY_IN_MB": _mebibytes("leaves {} of each GPU to the system (default 225 to 1800 MiB)"),
    "TF_GPU_HOST_MEM_LIMIT_IN_MB": _mebibytes("at most {} of pinned host memory for transfers"),
    "TF_ENABLE_GPU_GARBAGE_COLLECTION": _switch(
        "empty regions are given back before an allocation fails (the default)",
        "empty regions are kept when an allocation fails: more fragmentation under growth",
    ),
    "TF_CUDNN_WORKSPACE_LIMIT_IN_MB": _mebibytes("at most {} of scratch per cuDNN convolution (default 8 GiB)"),
    "CUDNN_ERRATA_JSON_FILE": lambda value: f"cuDNN leaves out the kernels listed in {value}",
    "TF_CUBLAS_WORKSPACE_LIMIT_IN_MB": _mebibytes("at most {} of scratch per matrix product (default 4 GiB)"),
    "TF_CUDNN_USE_AUTOTUNE": _switch(
        "tries every convolution algorithm on the first step (the default), which raises its peak",
        "takes the first convolution algorithm: no peak on the first step, possibly slower",
    ),
    "TF_DETERMINISTIC_OPS": _switch(
        'deterministic operations; jit_compile="auto" becomes False', "no effect (the default)"
    ),
    "TF_CUDNN_DETERMINISTIC": _switch("only deterministic cuDNN algorithms", "no effect (the default)"),
    "TF_XLA_FLAGS": _tf_xla_flags,
    "XLA_FLAGS": _xla_flags,
    "TF_BFC_MEMORY_DUMP": lambda value: f"on out-of-memory the allocator's map is written to {value}…",
    "TF_CPU_ALLOCATOR_USE_BFC": _switch(
        "CPU tensors come from the BFC allocator, as on a GPU: a limit and statistics are real", "no effect"
    ),
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": _mebibytes("CPU tensors may take at most {}"),
    "TF_ENABLE_ONEDNN_OPTS": _switch("oneDNN kernels on the CPU (the default)", "no oneDNN kernels on the CPU"),
    "KERAS_BACKEND": _keras_backend,
    "TF_USE_LEGACY_KERAS": _switch("tf.keras is Keras 2, which memfit does not work with", "no effect"),
    "XLA_PYTHON_CLIENT_PREALLOCATE": lambda _: "JAX's; no effect on TensorFlow",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": lambda _: "JAX's; no effect on TensorFlow",
    "PYTORCH_CUDA_ALLOC_CONF": lambda _: "PyTorch's; no effect on TensorFlow",
}
