"""The TensorFlow and Keras that are installed, read from their files without importing them."""

import ast
import ctypes
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from memfit.framework import installed_version, keras_backend, tensorflow_distribution

# What a CUDA 12 build of TensorFlow opens when it looks for a GPU (all have to open, or no GPU is registered).
_CUDA_12_LIBRARIES = {
    "libcudart.so.12": "nvidia-cuda-runtime-cu12",
    "libcublas.so.12": "nvidia-cublas-cu12",
    "libcublasLt.so.12": "nvidia-cublas-cu12",
    "libcufft.so.11": "nvidia-cufft-cu12",
    "libcusolver.so.11": "nvidia-cusolver-cu12",
    "libcusparse.so.12": "nvidia-cusparse-cu12",
    "libcudnn.so.9": "nvidia-cudnn-cu12",
}


@dataclass(frozen=True)
class Installation:
    """Which TensorFlow and Keras there are."""

    distribution: str | None
    tensorflow: str | None
    keras: str | None
    keras_backend: str
    cuda_build: bool | None
    """Whether this TensorFlow can use an NVIDIA GPU at all; `None` if its build record cannot be read."""
    cuda_version: str | None
    cudnn_version: str | None
    missing_libraries: tuple[str, ...] | None
    """CUDA libraries TensorFlow will not find; `None` where it needs none or that is not known."""

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        missing = self.missing_libraries
        return {
            "distribution": self.distribution,
            "tensorflow": self.tensorflow,
            "keras": self.keras,
            "keras_backend": self.keras_backend,
            "cuda_build": self.cuda_build,
            "cuda_version": self.cuda_version,
            "cudnn_version": self.cudnn_version,
            "missing_libraries": None if missing is None else list(missing),
        }


def read_installation(environment: Mapping[str, str] = os.environ) -> Installation:
    """Read versions, build and libraries; never imports TensorFlow and never raises."""
    distribution, version = tensorflow_distribution() or (None, None)
    spec = find_spec("tensorflow") if distribution else None
    folder = Path(spec.origin).parent if spec and spec.origin else None
    build = _build_record(folder)
    is_cuda = build.get("is_cuda_build")
    cuda, cudnn = build.get("cuda_version"), build.get("cudnn_version")
    return Installation(
        distribution=distribution,
        tensorflow=version,
        keras=installed_version("keras"),
        keras_backend=keras_backend(),
        cuda_build=is_cuda if isinstance(is_cuda, bool) else None,
        cuda_version=None if cuda is None else str(cuda),
        cudnn_version=None if cudnn is None else str(cudnn),
        missing_libraries=_missing(folder, environment) if is_cuda is True and folder else None,
    )


def package_of(library: str) -> str:
    """The package on PyPI that brings a CUDA library."""
    return _CUDA_12_LIBRARIES[library]


def _build_record(folder: Path | None) -> dict[str, object]:
    """TensorFlow's `build_info` dictionary, read as text: importing it would import TensorFlow."""
    if folder is None:
        return {}
    try:
        text = (folder / "python/platform/build_info.py").read_text(encoding="utf-8")
    except OSError:
        return {}
    match = re.search(r"OrderedDict\((.*)\)\s*$", text, re.DOTALL)
    try:
        return dict(ast.literal_eval(match.group(1))) if match else {}
    except (ValueError, SyntaxError, TypeError):
        return {}


def _missing(tensorflow_folder: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    # The wheel looks into its neighbours nvidia/*/lib first, then where the loader looks.
    folders = sorted(tensorflow_folder.parent.glob("nvidia/*/lib"))
    folders += [Path(each) for each in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each]
    return tuple(
        name
        for name in _CUDA_12_LIBRARIES
        if not any((folder / name).exists() for folder in folders) and not _loads(name)
    )


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
