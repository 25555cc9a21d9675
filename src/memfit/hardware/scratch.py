"""How much scratch memory cuDNN may take: TensorFlow's cap, and the kernels that are not worth trying.

XLA heeds no cap. It times every kernel that cuDNN offers, and for a U-Net of 256 pixels at batch 8 those with Fourier
transforms want up to 18 GB; one that does not fit waits ten seconds for memory before it fails (bfc_allocator.cc,
`kMaxMillisToWait`), so that the step stands still for minutes under a limit. For three models on an H200 none of them
was ever chosen. cuDNN's frontend leaves out what a file of "errata" lists by engine number.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memfit.units import GIB, MIB

CAP, ERRATA = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB", "CUDNN_ERRATA_JSON_FILE"
"""The first is read at a process's first convolution (conv_ops.cc), the second when cuDNN first lists its kernels."""

DEFAULT_CAP = 8 * GIB
_FFT_ENGINES = Path(__file__).with_name("cudnn_fft_engines.json")


def cap() -> int:
    """The most scratch memory that a convolution outside XLA may ask for, as this process is set up."""
    value = os.environ.get(CAP, "")
    return int(value) * MIB if value.isdigit() else DEFAULT_CAP


def leave_fft_kernels_out() -> None:
    """Keep cuDNN from offering its Fourier kernels, unless somebody has chosen kernels already."""
    os.environ.setdefault(ERRATA, str(_FFT_ENGINES))


def leaves_fft_kernels_out() -> bool:
    """Whether that was done."""
    return os.environ.get(ERRATA) == str(_FFT_ENGINES)


@contextmanager
def capped(limit: int) -> Iterator[None]:
    """Let convolutions that run for the first time inside ask for at most `limit` bytes, and for no Fourier kernel."""
    before = {name: os.environ.get(name) for name in (CAP, ERRATA)}
    os.environ[CAP] = str(limit // MIB)
    leave_fft_kernels_out()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
