"""What happens when the script imports TensorFlow and Keras: until then nothing of them is touched.

A script may set `CUDA_VISIBLE_DEVICES` or `KERAS_BACKEND` in its first lines, and they still have to count.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import MetaPathFinder
from typing import Any

import wrapt

from memfit.compat.cpu_allocator import take_one_region
from memfit.errors import MemfitError
from memfit.framework import keras_backend
from memfit.hardware import devices, onednn
from memfit.script.settings import Settings
from memfit.script.words import refuse, say

# TensorFlow's functions with which a script configures device memory.
_SETTERS = (
    ("config.experimental", "set_memory_growth"),
    ("config.experimental", "set_virtual_device_configuration"),
    ("config", "set_logical_device_configuration"),
)


def when_imported(settings: Settings, watch_keras: Callable[[], None]) -> None:
    """Set the devices up when TensorFlow is imported, and call `watch_keras` when Keras is."""
    if settings.device_limit is not None:
        # TensorFlow reads this variable while it is imported. Until then the script's environment stays its own.
        sys.meta_path.insert(0, _BeforeImport("tensorflow", onednn.turn_off))
    if settings.device_option is not None:
        wrapt.register_post_import_hook(lambda tf: _set_devices_up(tf, settings), "tensorflow")
    wrapt.register_post_import_hook(lambda _: _watch(watch_keras), "keras")


class _BeforeImport(MetaPathFinder):
    """Calls a function when a module is about to be imported for the first time; finds nothing itself."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._name, self._call = name, call
        self._called = False

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        """Look at the name and leave the rest to the finders that follow."""
        # It stays in `sys.meta_path`: importlib is iterating over that list, and would skip the finder behind it.
        if fullname == self._name and not self._called:
            self._called = True
            self._call()


def _set_devices_up(tf: Any, settings: Settings) -> None:
    try:
        configured = devices.configure(limit=settings.device_limit, growth=settings.growth)
    except MemfitError as error:
        refuse(error)
    if configured.device_type == "CPU" and settings.device_limit is not None:
        take_one_region(settings.device_limit)
    for place, name in _SETTERS:
        setattr(import_module(f"{tf.__name__}.{place}"), name, _overruled(name, settings))


def _overruled(name: str, settings: Settings) -> Callable[..., None]:
    """Replace a setter that would contradict the command line, and fail."""

    def leave_out(*_: Any, **__: Any) -> None:
        say(f"{settings.device_option} is in effect; the script's {name}(...) is ignored")

    return leave_out


def _watch(watch_keras: Callable[[], None]) -> None:
    if keras_backend() != "tensorflow":
        say(f"Keras runs on {keras_backend()!r}; memfit supports 'tensorflow' only, so nothing is watched")
        return
    watch_keras()
