"""What happens when the script imports TensorFlow and Keras: until then nothing of them is touched.

A script may set `CUDA_VISIBLE_DEVICES` or `KERAS_BACKEND` in its first lines, and they still have to count.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import wrapt

from memfit.errors import MemfitError
from memfit.framework import keras_backend
from memfit.hardware import devices
from memfit.script.settings import Settings
from memfit.script.words import refuse, say

# Where TensorFlow keeps what a script may say about memory.
_SETTERS = (
    ("config.experimental", "set_memory_growth"),
    ("config.experimental", "set_virtual_device_configuration"),
    ("config", "set_logical_device_configuration"),
)


def when_imported(settings: Settings, watch_keras: Callable[[], None]) -> None:
    """Set the devices up when TensorFlow comes, and call `watch_keras` when Keras has come."""
    if settings.device_option is not None:
        wrapt.register_post_import_hook(lambda tf: _set_devices_up(tf, settings), "tensorflow")
    wrapt.register_post_import_hook(lambda _: _watch(watch_keras), "keras")


def _set_devices_up(tf: Any, settings: Settings) -> None:
    try:
        devices.configure(limit=settings.device_limit, growth=settings.growth)
    except MemfitError as error:
        refuse(error)
    for place, name in _SETTERS:
        setattr(import_module(f"{tf.__name__}.{place}"), name, _overruled(name, settings))


def _overruled(name: str, settings: Settings) -> Callable[..., None]:
    """In place of a setter that would contradict what was asked for, and fail."""

    def leave_out(*_: Any, **__: Any) -> None:
        say(f"{settings.device_option} decides; the script's {name}(...) is left out")

    return leave_out


def _watch(watch_keras: Callable[[], None]) -> None:
    if keras_backend() != "tensorflow":
        say(f"Keras runs on {keras_backend()!r} here, and memfit works with 'tensorflow': nothing is watched")
        return
    watch_keras()
