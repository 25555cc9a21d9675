"""What TensorFlow itself says of its devices, asked in a child process: it may be slow, crash or hang.

Run as a program this module is that child; it prints one line of JSON.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

_MARK = "memfit-probe "


@dataclass(frozen=True)
class Probe:
    """What the child found, or in `error` why it found nothing."""

    gpus: tuple[str, ...] = ()
    auto_jit: bool | None = None
    log: tuple[str, ...] = ()
    """TensorFlow's own complaints about GPU libraries."""
    error: str | None = None

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {"gpus": list(self.gpus), "auto_jit": self.auto_jit, "log": list(self.log), "error": self.error}


def probe(timeout: float) -> Probe:
    """Import TensorFlow in a child process and ask it for its GPUs and what `jit_compile="auto"` becomes."""
    command = [sys.executable, "-m", __name__]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Probe(error=f"TensorFlow did not answer within {timeout:g} s")
    log = tuple(line for line in child.stderr.splitlines() if "dlopen" in line or "CUDA_ERROR" in line)
    answers = [line for line in child.stdout.splitlines() if line.startswith(_MARK)]
    if child.returncode or not answers:
        last = child.stderr.strip().splitlines()[-1:] or [f"it ended with code {child.returncode}"]
        return Probe(log=log, error=f"importing TensorFlow failed: {last[0]}")
    answer = json.loads(answers[-1].removeprefix(_MARK))
    return Probe(gpus=tuple(answer["gpus"]), auto_jit=answer["auto_jit"], log=log)


def _answer() -> dict[str, Any]:
    import keras
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return {"gpus": names, "auto_jit": bool(model.jit_compile)}


if __name__ == "__main__":
    sys.stdout.write(_MARK + json.dumps(_answer()) + "\n")
