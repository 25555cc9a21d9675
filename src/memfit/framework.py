"""TensorFlow and Keras, imported on first use, or one sentence that says why they cannot be.

Every other module gets them here, so that importing memfit never imports TensorFlow by accident.
"""

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from memfit.errors import BrokenEnvironmentError

TENSORFLOW_SUPPORTED = ((2, 18), (2, 21))
KERAS_OLDEST = (3, 9)
# TensorFlow ships under several names; the first that is installed is the one that is imported.
TENSORFLOW_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "tensorflow-rocm")

# What was found usable, by name: looking its version up takes a millisecond, and a step asks several times.
_usable: dict[str, ModuleType] = {}

INSTALL_TENSORFLOW = 'pip install "memfit[cuda]"   # or "memfit[cpu]" on a machine without a GPU'


def tensorflow() -> ModuleType:
    """Import TensorFlow.

    Raises:
        BrokenEnvironmentError: If it is missing, cannot be imported, or is not a supported version.
    """
    if "tensorflow" in _usable:
        return _usable["tensorflow"]
    installed = tensorflow_distribution()
    if installed is None:
        raise BrokenEnvironmentError(f"TensorFlow is not installed. Install it with: {INSTALL_TENSORFLOW}")
    if complaint := tensorflow_complaint(installed[1]):
        raise BrokenEnvironmentError(complaint)
    try:
        _usable["tensorflow"] = import_module("tensorflow")
    except ImportError as error:
        raise BrokenEnvironmentError(
            f"TensorFlow {installed[1]} is installed but cannot be imported: {error}. "
            "`memfit doctor --deep` shows what is wrong."
        ) from error
    return _usable["tensorflow"]


def import_for_predicting() -> None:
    """Import TensorFlow quietly and keep it off the GPU; for commands that predict and measure in child processes.

    Its chatter would drown the answer, and at its start no log level silences it. A GPU it saw it would take whole,
    and nothing were left to measure on.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        with _imports_kept(), _without_jax():
            tensorflow()
        # The first look at the devices speaks too.
        import_module("tensorflow").config.set_visible_devices([], "GPU")
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _imports_kept() -> Iterator[None]:
    """Keep the garbage collector from looking through what is imported: it stays as long as the process lives."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _without_jax() -> Iterator[None]:
    """Keep TensorFlow from importing JAX, which it does wherever that is installed, to convert models from it.

    The extra `xla` installs it, and importing it takes a quarter of a second.
    """
    if "jax" in sys.modules:
        yield
        return
    # Importing it raises ImportError then.
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["jax"]


def keras() -> ModuleType:
    """Import Keras 3 on the TensorFlow backend.

    Raises:
        BrokenEnvironmentError: If Keras is missing, too old, or set to another backend.
    """
    if "keras" in _usable:
        return _usable["keras"]
    tensorflow()
    if complaint := keras_complaint(installed_version("keras"), keras_backend()):
        raise BrokenEnvironmentError(complaint)
    _usable["keras"] = import_module("keras")
    return _usable["keras"]


@cache
def as_keras_callback(cls: type) -> Any:
    """The same class as a Keras callback, for classes whose import does not import Keras."""
    return type(cls.__name__, (cls, keras().callbacks.Callback), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def tensorflow_distribution() -> tuple[str, str] | None:
    """Name and version of the installed TensorFlow, without importing it."""
    for name in TENSORFLOW_DISTRIBUTIONS:
        if version := installed_version(name):
            return name, version
    return None


def tensorflow_complaint(version: str) -> str | None:
    """Why this TensorFlow cannot be used, or `None`. Newer ones are taken on trust."""
    oldest = TENSORFLOW_SUPPORTED[0]
    if version_key(version) < oldest:
        return (
            f"TensorFlow {version} is too old: memfit works with {dotted(oldest)} and later. "
            f"Upgrade it with: {INSTALL_TENSORFLOW}"
        )
    return None


def keras_complaint(version: str | None, backend: str) -> str | None:
    """Why this Keras cannot be used, or `None`."""
    if version is None:
        return 'Keras is not installed. Install it with: pip install "keras>=3.9"'
    if version_key(version) < KERAS_OLDEST:
        return (
            f"Keras {version} is too old: memfit works with {dotted(KERAS_OLDEST)} and later. "
            'Upgrade it with: pip install --upgrade "keras>=3.9"'
        )
    if backend != "tensorflow":
        return (
            f"Keras is set to the {backend!r} backend; memfit works with 'tensorflow'. "
            "Set it with: export KERAS_BACKEND=tensorflow"
        )
    return None


def keras_backend() -> str:
    """The backend Keras will use, read as Keras reads it: the environment, then its configuration file."""
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend
    home = os.environ.get("KERAS_HOME")
    config = (Path(home) if home else Path.home() / ".keras") / "keras.json"
    try:
        backend = json.loads(config.read_text(encoding="utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        return "tensorflow"
    return backend if isinstance(backend, str) else "tensorflow"


def version_key(version: str) -> tuple[int, int]:
    """Major and minor of a version string."""
    major, _, rest = version.partition(".")
    minor = "".join(letter for letter in rest.partition(".")[0] if letter.isdigit())
    return int(major), int(minor or 0)


def dotted(version: tuple[int, int]) -> str:
    """(2, 18) as "2.18"."""
    return f"{version[0]}.{version[1]}"
