"""The allocator that TensorFlow uses for a CPU with a memory limit.

Checked with TensorFlow 2.21. A `LogicalDeviceConfiguration(memory_limit=...)` that held for CPUs would replace it.
"""

from importlib import import_module
from typing import Any

from memfit.framework import tensorflow
from memfit.units import MIB

_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
# Eigen's alignment on every processor: TensorFlow uses such an array as it is, and allocates nothing for it.
_ALIGNMENT = 64


def take_one_region(limit: int) -> None:
    """Have the allocator take its limit as one region when TensorFlow sets its devices up.

    Left alone it grows by regions of 2, 4, 8 MiB and so on, and no tensor can lie in two of them (bfc_allocator.cc,
    `Extend`): limited to 8 MiB, a process could not hold one tensor of 5. Nothing is written to the region, so the
    memory is the process's only as far as it is used.

    Args:
        limit: What the allocator may take, in bytes.
    """
    context = import_module("tensorflow.python.eager.context").context()
    set_up = context.ensure_initialized

    def set_up_and_take() -> None:
        # The instance's own attribute hides the method; once it is gone, TensorFlow's is called.
        is_first = vars(context).pop("ensure_initialized", None) is not None
        set_up()
        if is_first:
            _allocate_once(limit)

    context.ensure_initialized = set_up_and_take


def _allocate_once(limit: int) -> None:
    tf = tensorflow()
    if not tf.compat.v1.executing_eagerly_outside_functions():
        # An operation more in a graph of TensorFlow 1 would change the seeds of those behind it.
        return
    try:
        with tf.init_scope(), tf.device(_CPU):
            if tf.config.experimental.get_memory_info("CPU:0")["peak"]:
                # It has a region already, and what is left may be too little.
                return
            tf.raw_ops.Empty(shape=_shape(limit // MIB, MIB), dtype=tf.uint8, init=False)
        tf.config.experimental.reset_memory_stats("CPU:0")
    except Exception:  # noqa: BLE001 (the script has to run without: then the allocator grows as TensorFlow has it)
        return


def _shape(*sizes: int) -> Any:
    """A shape as a tensor that takes nothing of the allocator."""
    import numpy as np

    buffer = np.zeros(_ALIGNMENT + 4 * len(sizes), np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    values = buffer[start : start + 4 * len(sizes)].view(np.int32)
    values[:] = sizes
    type_ = tensorflow().int32.as_datatype_enum
    return import_module("tensorflow.python.framework.ops").EagerTensor(values, _CPU, type_)
