"""A GPU described the way XLA wants it, from what the catalog knows.

XLA's cost model decides with these numbers what to fuse, and how much it may keep before it recomputes
(`GpuTargetConfigProto`, xla/stream_executor/device_description.proto).
"""

from dataclasses import dataclass

from memfit.hardware.catalog import GPU
from memfit.units import KIB, MIB

# What a card is taken for when only its memory is known: an A100's share of everything else.
_UNKNOWN_CAPABILITY = (8, 0)
_UNKNOWN_MULTIPROCESSORS, _UNKNOWN_CLOCK_HZ = 108, 1.41e9
_UNKNOWN_BANDWIDTH, _UNKNOWN_L2 = 2.039e12, 40 * MIB

# The cuDNN XLA is told of: TensorFlow 2.18 to 2.21 are built for cuDNN 9.3 (tensorflow/tools/pip_package/setup.py).
_CUDNN = (9, 3, 0)


@dataclass(frozen=True)
class _Multiprocessor:
    """Limits of one multiprocessor (CUDA C++ Programming Guide, table "Technical Specifications")."""

    shared_memory: int
    shared_memory_per_block: int
    threads: int
    float_units: int


_BY_CAPABILITY = {
    (6, 0): _Multiprocessor(64 * KIB, 48 * KIB, 2048, 64),
    (6, 1): _Multiprocessor(96 * KIB, 48 * KIB, 2048, 128),
    (7, 0): _Multiprocessor(96 * KIB, 96 * KIB, 2048, 64),
    (7, 5): _Multiprocessor(64 * KIB, 64 * KIB, 1024, 64),
    (8, 0): _Multiprocessor(164 * KIB, 163 * KIB, 2048, 64),
    (8, 6): _Multiprocessor(100 * KIB, 99 * KIB, 1536, 128),
    (8, 9): _Multiprocessor(100 * KIB, 99 * KIB, 1536, 128),
    (9, 0): _Multiprocessor(228 * KIB, 227 * KIB, 2048, 128),
    (10, 0): _Multiprocessor(228 * KIB, 227 * KIB, 2048, 128),
    (12, 0): _Multiprocessor(100 * KIB, 99 * KIB, 1536, 128),
}


def target_config(gpu: GPU) -> str:
    """The `GpuTargetConfigProto` of a GPU, in protobuf's text format.

    Args:
        gpu: A card of the catalog, or one of which only the memory is known; that one is described as Ampere-like.

    Returns:
        Text for `jax.experimental.topologies.get_topology_desc(target_config=…)`.

    Example:
        >>> from memfit.hardware.catalog import find_gpu
        >>> "core_count: 132" in target_config(find_gpu("H200"))
        True
    """
    capability = gpu.compute_capability or _UNKNOWN_CAPABILITY
    limits = _limits(capability)
    # Code for these generations is built with their own instructions (sm_90a), as TensorFlow does.
    extension = "ACCELERATED_FEATURES" if capability[0] in (9, 10, 12) else "NONE"
    return f"""\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {48 * KIB}
  shared_memory_per_core: {limits.shared_memory}
  threads_per_core_limit: {limits.threads}
  core_count: {multiprocessors_of(gpu)}
  fpus_per_core: {limits.float_units}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: {2**16 - 1}
  block_dim_limit_z: {2**16 - 1}
  memory_bandwidth: {int(gpu.bandwidth or _UNKNOWN_BANDWIDTH)}
  l2_cache_size: {gpu.l2_cache or _UNKNOWN_L2}
  clock_rate_ghz: {(gpu.clock_hz or _UNKNOWN_CLOCK_HZ) / 1e9:g}
  device_memory_size: {gpu.memory}
  shared_memory_per_block_optin: {limits.shared_memory_per_block}
  cuda_compute_capability {{
    major: {capability[0]}
    minor: {capability[1]}
    feature_extension: {extension}
  }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{
  major: {_CUDNN[0]}
  minor: {_CUDNN[1]}
  patch: {_CUDNN[2]}
}}
device_description_str: "{gpu.name}"
"""


def multiprocessors_of(gpu: GPU) -> int:
    """The multiprocessors of a GPU; an A100's where that is not known."""
    return gpu.multiprocessors or _UNKNOWN_MULTIPROCESSORS


def _limits(capability: tuple[int, int]) -> _Multiprocessor:
    """The limits of the nearest generation that is not newer; of the oldest for cards before it."""
    known = [each for each in sorted(_BY_CAPABILITY) if each <= capability]
    return _BY_CAPABILITY[known[-1] if known else min(_BY_CAPABILITY)]
