"""The child process that runs the steps of a model and reads the allocator.

`python -m memfit.estimation.measure_child DIRECTORY` reads `model.keras` and `request.pickle` there and writes
`answer.json`: the peaks, or how the memory ran out, or why the model cannot be used.
"""

import gc
import json
import pickle
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from memfit.errors import InputError, MemfitError
from memfit.framework import keras, tensorflow
from memfit.hardware import devices
from memfit.hardware.host import host_memory
from memfit.hardware.out_of_memory import one_sentence, out_of_memory

# As in the measurements the predictions were checked with: three steps until nothing is traced or tuned any more.
_WARM_UP_STEPS = 3
_FIRST_REGION = 2 * 2**20
_ALIGNMENT = 64  # EIGEN_MAX_ALIGN_BYTES
_HOST_SHARE = 0.8  # the rest is for Python and what the allocator does not see


def answer(directory: Path) -> dict[str, Any]:
    """Measure the model of a directory; see above for the files."""
    request = pickle.loads((directory / "request.pickle").read_bytes())
    phase = "setting the device up"
    limit = request["limit"]
    try:
        limit = _set_up(limit)
        phase = "loading the model"
        model = _load(directory / "model.keras", request)
        phase = "making a random batch"
        batch = _random_batch(model, request["batch"])
        peaks: dict[str, Any] = {}
        with _inside(model, request["inside"]):
            for doing, measure in _phases(model, batch, request["steps"]):
                phase = doing
                devices.reset_peak()
                peaks |= measure()
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
        if sentence := out_of_memory(error):
            return {"out_of_memory": sentence, "phase": phase, "limit": limit}
        if isinstance(error, InputError):
            return {"refused": str(error)}
        if isinstance(error, MemfitError):
            return {"error": str(error)}
        if phase == "loading the model":
            return {
                "error": f"the saved model cannot be loaded again: {_reason(error)} "
                "Check that keras.saving.load_model works on it, in a new process that imports your classes."
            }
        return {"error": f"{phase} failed: {_reason(error)} Check that model.fit works on a batch of this shape."}
    (device, *_) = devices.memory()
    return {"device": device.device, "device_name": _device_name(), "jit": bool(model.jit_compile), **peaks}


def _set_up(limit: int | None) -> int | None:
    """Configure the one device that is measured; returns the limit it has."""
    tf = tensorflow()
    if tf.config.get_visible_devices("GPU"):
        devices.configure(visible=[0], growth=limit is None, limit=limit)
        return limit
    if limit is None:
        usable = host_memory().usable
        limit = None if usable is None else int(usable * _HOST_SHARE)
    # One operation at a time, so that the same program has the same peak each time.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    devices.configure(limit=limit)
    if limit is not None:
        # One region, as a GPU under a limit has: several lie where the system puts them, differently each time.
        tf.raw_ops.Empty(shape=[max(limit - _FIRST_REGION, 0) >> 20, 2**20], dtype=tf.uint8)
    return limit


def _load(path: Path, request: dict[str, Any]) -> Any:
    config, saving = keras().config, keras().saving
    config.set_floatx(request["floatx"])
    config.set_dtype_policy(request["policy"])
    custom: dict[str, Any] = {}
    for module, name in request["custom"]:
        found = resolve_name(f"{module}:{name}")
        custom |= {name: found, saving.get_registered_name(found): found}
    # The parent saved this file a moment ago, from a model it holds: its Lambda layers are no stranger's.
    model = saving.load_model(path, custom_objects=custom, safe_mode=False)
    if not model.compiled:
        raise MemfitError(
            f"{model.name!r} has a compile() of its own, which is not repeated when a model is loaded. "
            "Give it get_compile_config() and compile_from_config()."
        )
    if request["jit"] is not None:
        model.jit_compile = request["jit"]
    # Loading created the optimizer's variables; training creates them in its first step.
    _let_go(model.optimizer.variables)
    model.optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
    if not tensorflow().config.get_visible_devices("GPU"):
        _own_the_weights(model)
    gc.collect()  # what loading left behind would be counted
    return model


def _own_the_weights(model: Any) -> None:
    """Lay the variables out as building a model does.

    A variable that was loaded on the CPU may or may not use the memory of the array it was loaded from, by how that
    happened to be aligned.
    """
    raw = tensorflow().raw_ops
    values = [_aligned(each.numpy()) for each in model.variables]
    _let_go(model.variables)
    gc.collect()
    trainable = {id(each) for each in model.trainable_variables}
    for variable, value in zip(model.variables, values, strict=True):
        # Keras draws a weight in three buffers, of which the last one stays.
        copies = [raw.DeepCopy(x=value)]
        for _ in range(2 if id(variable) in trainable and len(variable.shape) > 1 else 0):
            copies.append(raw.DeepCopy(x=copies[-1]))
        raw.AssignVariableOp(resource=variable.value.handle, value=copies.pop())
        copies.clear()


def _let_go(variables: Sequence[Any]) -> None:
    """Free what variables hold, whoever keeps the variables."""
    tf = tensorflow()
    for variable in variables:
        tf.raw_ops.AssignVariableOp(resource=variable.value.handle, value=tf.zeros((), variable.value.dtype))


def _aligned(value: Any) -> Any:
    """A copy at an address TensorFlow uses as it is, instead of copying it to memory of its own."""
    room = np.empty(value.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    aligned = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    aligned[...] = value
    return aligned


def _inside(model: Any, context: tuple[str, Any] | None) -> AbstractContextManager[Any]:
    if context is None:
        return nullcontext()
    name, argument = context
    entered: AbstractContextManager[Any] = resolve_name(name)(model, argument)
    return entered


def _phases(model: Any, batch: Any, steps: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """What is done, in words, and the doing."""
    dataset = tensorflow().data.Dataset.from_tensors(batch)

    def first() -> dict[str, Any]:
        model.fit(dataset.repeat(_WARM_UP_STEPS), epochs=1, verbose=0)
        return {"first_step_peak": _peak(), "between_steps": devices.memory()[0].current or None}

    def steady() -> dict[str, Any]:
        count = _WARM_UP_STEPS * steps
        began = time.perf_counter()
        model.fit(dataset.repeat(count), epochs=1, verbose=0)
        return {"steady_peak": _peak(), "step_seconds": (time.perf_counter() - began) / count}

    def evaluate() -> dict[str, Any]:
        model.evaluate(dataset, verbose=0)
        return {"evaluate_peak": _peak()}

    def predict() -> dict[str, Any]:
        model.predict(dataset, verbose=0)
        return {"predict_peak": _peak()}

    yield "training the first steps", first
    yield "training", steady
    yield "evaluating", evaluate
    yield "predicting", predict


def _peak() -> int | None:
    """The most since the last reset; an allocator that does not count says 0."""
    return devices.memory()[0].peak or None


def _random_batch(model: Any, specs: Any) -> Any:
    """Random tensors of these shapes, in host memory, with integers the model can take."""
    tf = tensorflow()
    inputs, *rest = specs if isinstance(specs, tuple) else (specs,)
    vocabulary = _smallest_vocabulary(model)
    outputs = getattr(model, "outputs", None) or []

    def labels(targets: Any) -> Any:
        flat = tf.nest.flatten(targets)
        known = outputs if len(outputs) == len(flat) else [None] * len(flat)
        return tf.nest.pack_sequence_as(
            targets, [_random(spec, _classes(spec, output)) for spec, output in zip(flat, known, strict=True)]
        )

    with tf.device("CPU:0"):
        x = tf.nest.map_structure(lambda spec: _random(spec, vocabulary), inputs)
        y_and_weights = (
            (labels(rest[0]), *tf.nest.map_structure(lambda spec: _random(spec, 2), rest[1:])) if rest else ()
        )
    return (x, *y_and_weights) if isinstance(specs, tuple) else x


def _random(spec: Any, below: int) -> Any:
    """A random tensor: integers from 0 to `below`, floats from 0 to 1."""
    tf = tensorflow()
    if spec.dtype == tf.string:
        return tf.fill(spec.shape, "")
    if spec.dtype.is_floating:
        return tf.random.stateless_uniform(spec.shape, seed=(0, 0), dtype=spec.dtype)
    integers = tf.random.stateless_uniform(spec.shape, seed=(0, 0), maxval=below, dtype="int32")
    return tf.cast(integers, spec.dtype)


def _smallest_vocabulary(model: Any) -> int:
    embeddings = [each for each in model._flatten_layers() if isinstance(each, keras().layers.Embedding)]
    return min((each.input_dim for each in embeddings), default=2)


def _classes(target: Any, output: Any | None) -> int:
    """How many values an integer label may have: 0 and 1 where it has the shape of the output."""
    if output is None or tuple(target.shape[1:]) == tuple(output.shape[1:]):
        return 2
    return output.shape[-1] or 2


def _reason(error: BaseException) -> str:
    """What went wrong, in one line; Keras wraps what a layer raised when it is loaded."""
    while error.__context__ is not None and "could not be deserialized" in str(error):
        error = error.__context__
    return f"{type(error).__name__}: {one_sentence(' '.join(str(error).split())[:300] or 'it left no message')}"


def _device_name() -> str:
    tf = tensorflow()
    for gpu in tf.config.get_visible_devices("GPU"):
        return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
    return platform.processor() or platform.machine()


def main(directory: Path) -> None:
    """Write the answer, whole or not at all."""
    text = json.dumps(answer(directory))
    (directory / "answer.tmp").write_text(text, encoding="utf-8")
    (directory / "answer.tmp").replace(directory / "answer.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
