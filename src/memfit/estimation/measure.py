"""Measure what a step really takes: run it in a process of its own and read TensorFlow's allocator.

This process only saves the model and waits; nothing of the size of a step is allocated here.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from memfit.errors import InputError, MemfitError
from memfit.framework import keras, tensorflow
from memfit.trace.batch import batch_spec
from memfit.trace.tracer import refuse_unready
from memfit.units import Size, format_size, parse_size

_CHILD = "memfit.estimation.measure_child"
# What this process decided about its own devices; the child decides for itself.
_OWN_DEVICES = ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_FORCE_GPU_ALLOW_GROWTH")
_NOT_CUSTOM = ("builtins", "keras")


class MeasureError(MemfitError):
    """A step that could not be measured: the model cannot be handed over, or the child did not come through."""

    exit_code = 1


class OutOfMemoryError(MeasureError):
    """The step needs more memory than the device, or the limit, has."""

    def __init__(self, phase: str, limit: int | None, sentence: str) -> None:
        room = "the memory there is" if limit is None else f"{format_size(limit)} of memory"
        super().__init__(
            f"{room} is not enough: TensorFlow ran out while {phase}. It said: {sentence} "
            f"{'Lower the batch size, or allow' if phase != 'loading the model' else 'Allow'} more memory."
        )
        self.phase = phase


class CrashError(MeasureError):
    """The child was ended by a signal, as oneDNN's kernels are when a CPU under a limit runs out of memory."""


@dataclass(frozen=True)
class Measurement:
    """What TensorFlow's allocator counted in a run of a few steps; bytes, `None` where unknown."""

    device: str
    """Where it ran, such as `"GPU:0"`."""
    device_name: str
    batch_size: int
    jit: bool
    first_step_peak: int | None
    """The most during the first three steps: building, tracing, autotuning."""
    steady_peak: int | None
    """The most during the steps after that."""
    between_steps: int | None
    """In use when no step is running: weights, optimizer state, metrics; on the CPU the batch too."""
    evaluate_peak: int | None
    predict_peak: int | None
    step_seconds: float | None
    tensorflow: str
    keras: str

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "device": self.device,
            "device_name": self.device_name,
            "batch_size": self.batch_size,
            "jit": self.jit,
            "measured_first_step_peak_bytes": self.first_step_peak,
            "measured_steady_peak_bytes": self.steady_peak,
            "measured_between_steps_bytes": self.between_steps,
            "measured_evaluate_peak_bytes": self.evaluate_peak,
            "measured_predict_peak_bytes": self.predict_peak,
            "measured_step_seconds": self.step_seconds,
            "tensorflow": self.tensorflow,
            "keras": self.keras,
        }


def measure(
    model: Any,
    batch_size: int,
    *,
    jit: bool | None = None,
    data: Any | None = None,
    steps: int = 5,
    timeout: float = 600,
    limit: Size | None = None,
    inside: tuple[str, Any] | None = None,
) -> Measurement:
    """Train, evaluate and predict on random batches in a child process and read the peaks.

    It runs on the GPU if TensorFlow sees one, else on the CPU through the same allocator a GPU has. Where this process
    has itself taken the GPU's memory, the child gets what is left.

    Args:
        model: A built, compiled Keras model that can be saved. Classes and functions of your own must be importable.
        batch_size: How many samples a batch has.
        jit: Whether to compile with XLA; `None` is as the model is compiled.
        data: An example batch, where the model does not say what it looks like; only its shapes are used.
        steps: A third of the number of steps the steady peak is taken over.
        timeout: Seconds after which the child is ended.
        limit: The most memory the device may use. Without one a GPU's memory grows as it is needed, and on the CPU
            80 % of what is free may be used.
        inside: A context manager to train in, as `module:name`, and what it is given besides the model.

    Returns:
        The peaks, and what they were measured on.

    Raises:
        OutOfMemoryError: If the memory does not suffice; it says in which phase.
        MeasureError: If the model cannot be saved or loaded again, or the child crashes or takes too long.
        InputError: If the model is not ready, or an argument cannot be used.

    Example:
        ```python
        measure(model, batch_size=64).steady_peak
        ```
    """
    refuse_unready(model)
    for what, count in (("batch_size", batch_size), ("steps", steps)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"{what} must be a whole number of at least 1; got {count!r}.")
    request: dict[str, Any] = {
        "batch": batch_spec(model, data)(batch_size),
        "jit": jit,
        "steps": steps,
        "limit": None if limit is None else parse_size(limit, what="limit"),
        "floatx": keras().config.floatx(),
        "policy": keras().config.dtype_policy().name,
        "inside": inside,
    }
    with tempfile.TemporaryDirectory(prefix="memfit-measure-") as name:
        directory = Path(name)
        _save(model, directory / "model.keras")
        request["custom"] = _custom_objects(model, directory / "model.keras")
        (directory / "request.pickle").write_bytes(pickle.dumps(request))
        _run_child(directory, timeout)
        answer = json.loads((directory / "answer.json").read_text(encoding="utf-8"))
    if "out_of_memory" in answer:
        raise OutOfMemoryError(answer["phase"], answer["limit"], answer["out_of_memory"])
    if "refused" in answer:
        raise InputError(answer["refused"])
    if "error" in answer:
        raise MeasureError(answer["error"])
    return Measurement(**answer, batch_size=batch_size, tensorflow=tensorflow().__version__, keras=keras().__version__)


def _custom_objects(model: Any, saved: Path) -> list[tuple[str, str]]:
    """Module and name of every class and function that is not Keras's own: the child imports them first."""
    with zipfile.ZipFile(saved) as archive:
        config = json.loads(archive.read("config.json"))
    functions = {each.__name__: each.__module__ for each in _functions(model)}
    found = set()
    for module, name in _named_in(config):
        # Keras saves functions by name alone, and what is in the script without a module.
        owner = functions.get(name, "builtins") if module == "builtins" else module or "__main__"
        if owner.partition(".")[0] in _NOT_CUSTOM:
            continue
        if owner == "__main__" or not hasattr(sys.modules.get(owner), name):
            where = "in the script itself" if owner == "__main__" else f"inside a function or class of {owner!r}"
            raise MeasureError(
                f"{name!r} is defined {where}, where the process that measures cannot import it. "
                "Move it to the top level of a module and import it from there."
            )
        found.add((owner, name))
    return sorted(found)


def _functions(model: Any) -> Iterator[FunctionType]:
    """The functions a model was made and compiled with: activations, losses, metrics."""
    compiled = getattr(model, "_compile_config", None)
    held: list[Any] = tensorflow().nest.flatten(dict(compiled.config)) if compiled is not None else []
    for owner in (*model._flatten_layers(), *held):
        held += getattr(owner, "__dict__", {}).values()
    return (each for each in held if isinstance(each, FunctionType))


def _named_in(config: Any) -> Iterator[tuple[str | None, str]]:
    """What a saved configuration refers to; Keras writes module and name beside each object's own settings."""
    if isinstance(config, dict):
        name = config.get("config") if config.get("class_name") == "function" else config.get("class_name")
        if isinstance(name, str) and config.get("registered_name") is not None:
            yield config.get("module"), name
    for each in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        yield from _named_in(each)


def _save(model: Any, path: Path) -> None:
    try:
        with warnings.catch_warnings():
            # Keras warns of what may not load again; whether it does, the child finds out.
            warnings.simplefilter("ignore", UserWarning)
            model.save(path)
    except Exception as error:
        # Saving calls the model's own `get_config`, which may raise anything.
        raise MeasureError(
            f"{model.name!r} cannot be saved, so it cannot be handed to the process that measures: "
            f"{type(error).__name__}: {_first_line(str(error))} "
            "Give its layers a get_config() that returns their arguments; `model.save('model.keras')` must work."
        ) from error


def _run_child(directory: Path, timeout: float) -> None:
    """Run the child until it has left an answer."""
    environment = {name: value for name, value in os.environ.items() if name not in _OWN_DEVICES}
    environment |= {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with (directory / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", _CHILD, str(directory)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(
                f"the measurement was not done after {timeout:g} s and was ended. "
                "Allow it more time, or measure fewer steps or a smaller batch."
            ) from error
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if status == 0 and (directory / "answer.json").exists():
        return
    if status == -signal.SIGKILL:
        raise MeasureError(
            "the process that measures was killed, which is what Linux does when the host runs out of memory. "
            "Lower the batch size, or pass a limit below the memory that is free."
        )
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"failed with exit code {status}"
    log_text = (directory / "log").read_text(encoding="utf-8", errors="replace")
    kind = CrashError if status < 0 else MeasureError
    raise kind(f"the process that measures {how}: {_last_line(log_text)}")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it left no message.")


def _last_line(text: str) -> str:
    return _first_line("\n".join(reversed(text.splitlines())))[:500]
