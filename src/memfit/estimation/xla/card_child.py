"""The child process that compiles a step with TensorFlow's XLA on the GPU of this machine.

`python -m memfit.estimation.xla.card_child DIRECTORY` reads `request.pickle` there and writes `answer`: the most bytes
of device memory that compiling took, as a line of JSON, and the optimised `HloProto`.
"""

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from memfit.compat.compiler_ir import add_definitions, optimised_hlo
from memfit.framework import tensorflow
from memfit.hardware import devices


def answer(request: dict[str, Any]) -> bytes:
    """Compile the step of a request on the first device there is."""
    tf = tensorflow()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    device = (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))[0].name
    with tf.device(device):
        captured = [_made(*each) for each in request["captured"]]
    add_definitions(request["definitions"])
    arguments = [tf.TensorSpec(shape, dtype) for shape, dtype in request["arguments"]]
    before = devices.memory()[0].current
    handles = [each.handle if isinstance(each, tf.Variable) else each for each in captured]
    optimised = optimised_hlo(request["name"], arguments, handles, device)
    return json.dumps(devices.memory()[0].peak - before).encode() + b"\n" + optimised


def _made(kind: str, value: Any) -> Any:
    tf = tensorflow()
    if kind == "constant":
        return tf.constant(value)
    shape, dtype = value
    return tf.Variable(tf.zeros(shape, dtype))


def main(directory: Path) -> None:
    """Write the answer, whole or not at all."""
    found = answer(pickle.loads((directory / "request.pickle").read_bytes()))
    (directory / "answer.tmp").write_bytes(found)
    (directory / "answer.tmp").replace(directory / "answer")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # XLA's threads take their time to end
