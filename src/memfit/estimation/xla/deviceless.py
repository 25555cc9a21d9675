"""XLA:GPU's own answer for a GPU that is not there.

The compiler in `jax-cuda12-plugin` needs a description of the GPU, not the GPU. It schedules, fuses and assigns
buffers as it would on the card; only what it would have timed there (cuDNN algorithms) is left open.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from memfit import framework
from memfit.cache import cached
from memfit.errors import BrokenEnvironmentError, MemfitError
from memfit.estimation.xla.autotuning import LOG_MODULES, Candidate, announced, candidates, offered_for, results_text
from memfit.estimation.xla.compiled import CompiledStep, read_compiled
from memfit.estimation.xla.target_config import target_config
from memfit.hardware.catalog import GPU
from memfit.hardware.cudnn import cudnn_version
from memfit.hardware.multiprocessor import multiprocessors_of

# The plugin whose XLA is of the same weeks as TensorFlow 2.21's (January 2026); its private names are used.
PLUGIN_VERSION = "0.9.0.1"
_DISTRIBUTIONS = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt")
_CHILD = "memfit.estimation.xla.compile_child"
_POLL_SECONDS = 0.1

_FLAGS = (
    # The buffer assignment comes out as a dump only.
    "--xla_dump_hlo_as_proto",
    # Machine code is thrown away, so it need not be good.
    "--xla_backend_optimization_level=0",
)

# Triton's matrix products have tiles that XLA would have timed. Without timing it takes its first guess, which some
# products cannot be cut into ("Couldn't find output tile sizes"); cuBLAS, the other backend, needs none.
_WITHOUT_TRITON = "--xla_gpu_enable_triton_gemm=false"

# XLA calls NVIDIA's assembler, which a machine without a GPU need not have and which drops old cards over time. Nothing
# here runs what it would make, so this answers in its place.
_ASSEMBLER = """\
#!/bin/sh
[ "$1" = --version ] && echo "Cuda compilation tools, release 12.9, V12.9.86" && exit
while [ $# -gt 0 ]; do
  [ "$1" = -o ] && echo unused > "$2"
  shift
done
exit 0
"""


class XlaExtraMissingError(BrokenEnvironmentError):
    """The packages of `memfit[xla]` are not there, or not the ones it works with."""


class XlaCompilationError(MemfitError):
    """XLA did not compile the step: it failed, crashed or took too long."""

    exit_code = 1


def missing_packages() -> tuple[str, ...]:
    """What the `xla` extra lacks here, as "name (why)"; empty when it is complete."""
    complaints = []
    for name in _DISTRIBUTIONS:
        version = framework.installed_version(name)
        if version is None:
            complaints.append(f"{name} (not installed)")
        elif version != PLUGIN_VERSION:
            complaints.append(f"{name} (found {version}, needs {PLUGIN_VERSION})")
    return tuple(complaints)


def compile_for(hlo: bytes, gpu: GPU, *, timeout: float = 300) -> CompiledStep:
    """Compile an HLO module for a GPU, in a child process that needs none.

    Args:
        hlo: A serialized `HloModuleProto` without copies, from `lower_to_hlo`.
        gpu: The card to compile for. Its memory counts: XLA recomputes values when it would not do otherwise.
        timeout: Seconds after which the compiler is ended.

    Returns:
        What the compiled step needs and when. Convolutions have the workspace that `workspace` says is likely.

    Raises:
        XlaExtraMissingError: If `memfit[xla]` is not installed, or in another version.
        XlaCompilationError: If the compiler fails, crashes, or is not done in time.
    """
    if missing := missing_packages():
        raise XlaExtraMissingError(
            f"compiling for {gpu.name} without a GPU needs {', '.join(missing)}. "
            'Install it with: pip install "memfit[xla]"   # Python 3.11 or later, Linux, about 2 GB'
        )
    target = target_config(gpu)
    kept = cached(
        "xla", (hlo, target, PLUGIN_VERSION, str(cudnn_version())), lambda: _compile(hlo, gpu, target, timeout)
    )
    sizes, _, optimised = kept.partition(b"\n")
    framework.tensorflow()
    proto = import_module("tensorflow.compiler.xla.service.hlo_pb2").HloProto.FromString(optimised)
    return read_compiled(proto, **json.loads(sizes))


def _compile(hlo: bytes, gpu: GPU, target: str, timeout: float) -> bytes:
    """The sizes the executable reports as one line of JSON, then the optimised module."""
    deadline = time.monotonic() + timeout
    try:
        return _compile_with((), hlo, gpu, target, deadline, timeout)
    except XlaCompilationError:
        if time.monotonic() > deadline:
            raise
        return _compile_with((_WITHOUT_TRITON,), hlo, gpu, target, deadline, timeout)


def _compile_with(flags: Sequence[str], hlo: bytes, gpu: GPU, target: str, deadline: float, timeout: float) -> bytes:
    with tempfile.TemporaryDirectory(prefix="memfit-xla-") as name:
        directory = Path(name)
        (directory / "module.pb").write_bytes(hlo)
        (directory / "target.txtpb").write_text(target, encoding="utf-8")
        _put_assembler(directory)
        if wanted := _what_would_be_timed(directory, flags, gpu, deadline, timeout):
            results = directory / "autotuning.txtpb"
            choices = results_text(wanted, multiprocessors_of(gpu), offered_for(wanted, gpu))
            results.write_text(choices, encoding="utf-8")
            with _child(directory, *flags, f"--xla_gpu_load_autotune_results_from={results}") as child:
                _wait(child, directory, gpu, deadline, timeout)
        sizes = json.loads((directory / "memory.json").read_text(encoding="utf-8"))
        dumps = list((directory / "dump").glob("*after_optimizations.hlo.pb"))
        if not dumps:
            raise XlaCompilationError(f"XLA compiled the step for {gpu.name} but left no buffer assignment to read.")
        optimised = max(dumps, key=lambda path: path.stat().st_size).read_bytes()
    return json.dumps(sizes).encode() + b"\n" + optimised


def _put_assembler(directory: Path) -> None:
    programs = directory / "cuda" / "bin"
    programs.mkdir(parents=True)
    (programs / "ptxas").write_text(_ASSEMBLER, encoding="utf-8")
    (programs / "ptxas").chmod(0o755)


def _what_would_be_timed(
    directory: Path, flags: Sequence[str], gpu: GPU, deadline: float, timeout: float
) -> tuple[Candidate, ...]:
    """Compile as far as autotuning and say what XLA would have timed; all the way where that is nothing."""
    with _child(directory, *flags) as child:
        while child.poll() is None and time.monotonic() < deadline:
            log = _log(directory)
            found = candidates(log)
            if len(found) >= (announced(log) or sys.maxsize):
                return found
            time.sleep(_POLL_SECONDS)
        _wait(child, directory, gpu, deadline, timeout)
    return ()


@contextmanager
def _child(directory: Path, *flags: str) -> "Iterator[subprocess.Popen[bytes]]":
    """The compiler, running; it has ended when the context is left."""
    with (directory / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", _CHILD, str(directory)],
            cwd=directory,
            env=_environment(directory, flags),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield child
        finally:
            _end(child)


def _wait(child: "subprocess.Popen[bytes]", directory: Path, gpu: GPU, deadline: float, timeout: float) -> None:
    try:
        status = child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise XlaCompilationError(
            f"XLA was not done compiling for {gpu.name} after {timeout:g} s and was ended. "
            "Allow it more time, or estimate without the compiler."
        ) from error
    if status == 0 and (directory / "memory.json").exists():
        return
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"failed with exit code {status}"
    raise XlaCompilationError(f"the XLA compiler {how} while compiling for {gpu.name}: {_last_words(_log(directory))}")


def _log(directory: Path) -> str:
    return (directory / "log").read_text(encoding="utf-8", errors="replace")


def _environment(directory: Path, flags: Sequence[str]) -> dict[str, str]:
    """The child's environment: the parent's import path, none of its device settings, one place to write."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XLA_", "TF_", "JAX_", "CUDA_", "KERAS_"))
    }
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(directory),
        "PATH": os.pathsep.join((str(directory / "cuda" / "bin"), kept.get("PATH", os.defpath))),
        "XLA_FLAGS": " ".join(
            (
                *_FLAGS,
                f"--xla_gpu_cuda_data_dir={directory / 'cuda'}",
                f"--xla_dump_to={directory / 'dump'}",
                *flags,
            )
        ),
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": LOG_MODULES,
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "CUDA_VISIBLE_DEVICES": "-1",
    }


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the child and what it started; harmless when it has ended."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _last_words(log: str) -> str:
    """The line of a log that says what went wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or line.startswith("F") or "INTERNAL" in line]
    return (telling or lines or ["it left no message."])[-1][:500]
