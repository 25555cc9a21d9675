"""What a run runs on."""

import platform
import sys
from datetime import datetime, timezone
from typing import Any

import memfit
from memfit.framework import keras, tensorflow
from memfit.hardware.device_reader import DeviceReader
from memfit.hardware.host import host_memory
from memfit.observe.events import Run


def describe_run(device: DeviceReader) -> Run:
    """The first line of a record."""
    tf = tensorflow()
    gpus = tf.config.get_visible_devices("GPU") if device.name.startswith("GPU") else []
    # Neither a prompt nor a notebook has a command worth repeating.
    command = [str(each) for each in sys.argv] if sys.argv and sys.argv[0] not in ("", "-c") else None
    return Run(
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        memfit=memfit.__version__,
        tensorflow=str(tf.__version__),
        keras=str(keras().__version__),
        python=platform.python_version(),
        device=device.name,
        device_name=_device_name(tf, gpus),
        limit_bytes=device.limit(),
        growth=bool(tf.config.experimental.get_memory_growth(gpus[0])) if gpus else None,
        host_memory_bytes=host_memory().ceiling,
    )


def _device_name(tf: Any, gpus: list[Any]) -> str:
    for gpu in gpus:
        return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
    return platform.processor() or platform.machine()
