"""oneDNN's CPU kernels, which TensorFlow uses by default: off where the CPU has a memory limit.

Under a limit they crash (SIGSEGV) where TensorFlow's own kernels report that memory ran out. TensorFlow reads the
variable once, when it is imported (tried with 2.21: set afterwards, `IsMklEnabled()` stays true).
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
# NVIDIA's driver, AMD's, and the one of Windows Subsystem for Linux.
_DRIVERS = ("proc/driver/nvidia", "dev/kfd", "dev/dxg")
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def turn_off(visible: Sequence[int] | None = None, root: Path = Path("/")) -> bool:
    """Turn oneDNN's kernels off, if TensorFlow will find no GPU; a value that the user set stays.

    Args:
        visible: The GPUs that TensorFlow may use, as for `memfit.devices.configure`.
        root: Where the machine's files are.

    Returns:
        Whether this call turned them off.
    """
    if VARIABLE in os.environ or "tensorflow" in sys.modules or _may_have_gpu(visible, root):
        return False
    os.environ[VARIABLE] = "0"
    return True


def is_off() -> bool:
    """Whether TensorFlow's own kernels run on this process's CPU."""
    return os.environ.get(VARIABLE, "1").lower() in ("0", "false")


def _may_have_gpu(visible: Sequence[int] | None, root: Path) -> bool:
    if visible is not None and not visible:
        return False
    if any(os.environ.get(name, "0").strip() in ("", "-1") for name in _HIDING):
        return False
    return any((root / driver).exists() for driver in _DRIVERS)
