"""A GPU described the way XLA wants it, from what the catalog knows.

XLA's cost model decides with these numbers what to fuse, and how much it may keep before it recomputes
(`GpuTargetConfigProto`, xla/stream_executor/device_description.proto).
"""

from memfit.hardware.catalog import GPU
from memfit.hardware.multiprocessor import UNKNOWN_CAPABILITY, limits_of, multiprocessors_of
from memfit.units import KIB, MIB

# What a card is taken for when only its memory is known: an A100's share of everything else.
_UNKNOWN_CLOCK_HZ = 1.41e9
_UNKNOWN_BANDWIDTH, _UNKNOWN_L2 = 2.039e12, 40 * MIB

# The cuDNN XLA is told of: TensorFlow 2.18 to 2.21 are built for cuDNN 9.3 (tensorflow/tools/pip_package/setup.py).
_CUDNN = (9, 3, 0)


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
    capability = gpu.compute_capability or UNKNOWN_CAPABILITY
    limits = limits_of(capability)
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
