"""What TensorFlow's own XLA makes of a step on the GPU of this machine, before the step runs.

XLA compiles, times kernels and lays its block of memory out as it will for the first step. Where this process uses the
GPU it is done here, and the first step finds the kernels already chosen. A process that keeps off the GPU, as the
commands that predict do, has a child compile.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from memfit import framework
from memfit.cache import cached
from memfit.compat.compiler_ir import captured_by, definitions_of, optimised_hlo
from memfit.errors import MemfitError
from memfit.estimation.xla.compiled import CompiledStep, read_compiled
from memfit.estimation.xla.hlo import LoweredStep
from memfit.hardware import devices
from memfit.hardware.card import card_here
from memfit.hardware.catalog import GPU

_CHILD = "memfit.estimation.xla.card_child"
_TIMEOUT = 600


class CardError(MemfitError):
    """XLA did not compile the step on the GPU of this machine."""

    exit_code = 1


def is_here(gpu: GPU) -> bool:
    """Whether a card is the one in this machine, and TensorFlow can use it."""
    return card_here() == gpu and bool(framework.tensorflow().config.list_physical_devices("GPU"))


def compile_on_card(lowered: LoweredStep, gpu: GPU) -> CompiledStep:
    """Compile a step on the GPU of this machine.

    Args:
        lowered: The step.
        gpu: The card; see `is_here`.

    Returns:
        What the compiled step needs and when, with the kernels that were chosen.

    Raises:
        CardError: If XLA fails, the GPU has too little memory to time kernels, or the child is not done in time.
    """
    tf = framework.tensorflow()
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "TF_XLA_FLAGS", "CUDNN_ERRATA_JSON_FILE")]
    make = _compile_here if tf.config.get_visible_devices("GPU") else _compile_in_child
    kept = cached("card", (lowered.hlo, gpu.name, tf.__version__, *flags), lambda: make(lowered))
    peak, _, optimised = kept.partition(b"\n")
    return read_on_card(optimised, json.loads(peak))


def read_on_card(optimised: bytes, compiling_peak: int | None) -> CompiledStep:
    """Read an `HloProto` whose kernels were chosen on the card."""
    proto = import_module("tensorflow.compiler.xla.service.hlo_pb2").HloProto.FromString(optimised)
    allocations = proto.buffer_assignment.buffer_allocations
    arguments = [each for each in allocations if each.is_entry_computation_parameter]
    results = [each for each in allocations if each.maybe_live_out]
    temporaries = [
        each
        for each in allocations
        if not (each.is_entry_computation_parameter or each.maybe_live_out or each.is_constant or each.is_thread_local)
    ]
    return read_compiled(
        proto,
        argument_bytes=sum(each.size for each in arguments),
        output_bytes=sum(each.size for each in results),
        alias_bytes=sum(each.size for each in results if each.is_entry_computation_parameter),
        temp_bytes=sum(each.size for each in temporaries),
        is_timed=True,
        compiling_peak=compiling_peak,
    )


def _compile_here(lowered: LoweredStep) -> bytes:
    tf = framework.tensorflow()
    device = tf.config.list_logical_devices("GPU")[0].name
    concrete = lowered.function
    before = devices.memory()[0]
    try:
        optimised = optimised_hlo(concrete.name, lowered.arguments, concrete.captured_inputs, device)
    except (tf.errors.OpError, ValueError) as error:
        raise CardError(f"XLA could not compile the step on {device}: {str(error).splitlines()[0]}") from error
    after = devices.memory()[0]
    # A peak that did not rise says only that less was taken than before.
    peak = after.peak - before.current if after.peak > before.peak else None
    return json.dumps(peak).encode() + b"\n" + optimised


def _compile_in_child(lowered: LoweredStep) -> bytes:
    request = {
        "definitions": definitions_of(lowered.function),
        "name": lowered.function.name,
        "arguments": [(each.shape.as_list(), each.dtype.name) for each in lowered.arguments],
        "captured": captured_by(lowered.function),
    }
    with tempfile.TemporaryDirectory(prefix="memfit-card-") as name:
        directory = Path(name)
        (directory / "request.pickle").write_bytes(pickle.dumps(request))
        _run_child(directory)
        return (directory / "answer").read_bytes()


def _run_child(directory: Path) -> None:
    with (directory / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", _CHILD, str(directory)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            status = child.wait(_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise CardError(f"XLA was not done compiling on this machine's GPU after {_TIMEOUT} s.") from error
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if status != 0 or not (directory / "answer").exists():
        lines = (directory / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise CardError(f"compiling on this machine's GPU failed with exit code {status}: {(lines or [''])[-1][:300]}")
