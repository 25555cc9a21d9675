"""`memfit run` where the disk is full or read-only, a signal ends the script, or the CPU has a memory limit."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

RUN = [sys.executable, "-m", "memfit", "run"]
NO_MODEL = "memfit: no training step of a Keras model ran, so nothing was recorded\n"

TRAINS = """
    import os, sys
    import keras
    import numpy as np

    class Odd(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.itself = [1]
            self.itself.append(self.itself)

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    if "--fill" in sys.argv:
        fill = os.open("fill", os.O_CREAT | os.O_WRONLY)
        try:
            while True:
                os.write(fill, b"0" * 1024)
        except OSError:
            pass
    x, y = np.ones((64, 64)), np.zeros((64, 4))
    history = model.fit(x, y, epochs=3, batch_size=16, verbose=0, shuffle=False, callbacks=[Odd()])
    print(["%.4f" % loss for loss in history.history["loss"]])
"""


def run(*command, cwd, **environment):
    base = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_", "CUDA_"))}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.run(
        command, cwd=cwd, env={**base, **quiet, **environment}, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture
def script(tmp_path):
    def write(code):
        (tmp_path / "train.py").write_text(textwrap.dedent(code))
        return "../train.py"

    return write


@pytest.fixture
def disk(tmp_path):
    """A disk of 512 KiB, which a snapshot of the model does not fit on."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        return subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False).returncode == 0

    if os.geteuid() != 0 or not mount("-t", "tmpfs", "-o", "size=512k", "none"):
        pytest.skip("needs the right to mount a small disk")
    try:
        yield folder, mount
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("--fill",)])
def test_a_full_disk_costs_snapshots_and_never_the_training(script, disk, given):
    folder, _ = disk
    path = script(TRAINS)
    plain = run(sys.executable, path, cwd=folder)
    assert plain.returncode == 0, plain.stderr
    # The warning that the record ends must not become an error.
    done = run(sys.executable, "-W", "error", "-m", "memfit", "run", "--snapshot-every", "0", path, *given, cwd=folder)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert done.stderr.count("no snapshot could be taken: No space left on device") == 1
    assert not list(folder.glob(".memfit*"))
    if given:
        assert "cannot be written: No space left on device" in done.stderr
        assert done.stderr.endswith("memfit: the training could not be recorded\n")
        assert [path.name for path in folder.iterdir()] == ["fill"]
    else:
        assert "Wrote run-" in done.stderr


@pytest.mark.slow
def test_a_read_only_folder_costs_the_record_and_nothing_else(script, disk, tmp_path):
    folder, mount = disk
    path = script(TRAINS)
    assert mount("-o", "remount,ro")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run(*RUN, "--snapshot-every", "0", path, cwd=folder, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert "cannot be written (Read-only file system), so the run leaves no record" in done.stderr
    assert "memfit: Finished." in done.stderr
    assert "Wrote" not in done.stderr
    assert not list(temporary.iterdir())


def test_a_record_that_was_asked_for_is_refused_where_it_cannot_be_written(script, disk):
    folder, mount = disk
    path = script("print('started')")
    assert mount("-o", "remount,ro")
    done = run(*RUN, "--record", "mine.memfit.jsonl", path, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("SIGKILL", "the system's out-of-memory killer, or someone with kill -9"),
        ("SIGTERM", "a request to stop"),
        ("SIGSEGV", "a crash in native code"),
    ],
)
def test_the_signal_that_ended_the_script_is_named(script, tmp_path, name, cause):
    script(f"import os, signal\nos.kill(os.getpid(), signal.{name})")
    done = run(*RUN, "train.py", cwd=tmp_path)
    assert done.returncode == -getattr(signal, name)
    (line,) = done.stderr.removesuffix(NO_MODEL).splitlines()
    assert line.startswith(f"memfit: the script was ended by {name}: ")
    assert cause in line


def test_a_signal_that_was_passed_on_names_its_sender(script, tmp_path):
    script("import time\nprint('ready', flush=True)\ntime.sleep(60)")
    process = subprocess.Popen(
        [*RUN, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert f"ended by SIGTERM, which process {os.getpid()} sent to memfit" in stderr


SEES_ONEDNN = """
    import json, os
    before = dict(os.environ)
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port
    # TensorFlow sets some variables itself.
    names = ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_ENABLE_ONEDNN_OPTS")
    after = [os.environ.get(name) for name in names]
    print(json.dumps([[before.get(name) for name in names], after, _pywrap_util_port.IsMklEnabled()]))
"""


@pytest.mark.parametrize(
    ("options", "environment", "after"),
    [
        (["--limit", "256MiB"], {}, ["1", "256", "0"]),
        pytest.param(["--limit", "256MiB"], {"TF_ENABLE_ONEDNN_OPTS": "1"}, ["1", "256", "1"], marks=pytest.mark.slow),
        pytest.param([], {}, [None, None, None], marks=pytest.mark.slow),
    ],
)
def test_a_limit_on_the_cpu_turns_onednn_off_when_tensorflow_is_imported(script, tmp_path, options, environment, after):
    script(SEES_ONEDNN)
    done = run(*RUN, *options, "train.py", cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    seen_before, seen_after, enabled = json.loads(done.stdout)
    assert seen_before == [None, None, environment.get("TF_ENABLE_ONEDNN_OPTS")]
    assert seen_after == after
    assert not (enabled and after[2] == "0")


def test_configure_says_when_it_is_too_late_for_onednn(run_child):
    applied, ignored = run_child(
        """
        import tensorflow as tf, memfit
        configured = memfit.devices.configure(limit="64MiB")
        report([configured.applied, configured.ignored])
        """
    )
    assert not any("oneDNN" in each for each in applied)
    assert any("oneDNN kernels: TensorFlow is already imported" in each for each in ignored)


def test_a_script_may_come_through_stdin(tmp_path):
    code = "import sys\nprint(__name__, __file__, sys.argv, sys.path[0] == '', sorted(globals()))\nraise SystemExit(3)"
    plain, ours = (
        subprocess.run([*command, "-", "--x"], cwd=tmp_path, input=code, capture_output=True, text=True, check=False)
        for command in ([sys.executable], RUN)
    )
    assert (ours.stdout, ours.returncode) == (plain.stdout, 3)
    assert ours.stderr == NO_MODEL


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print(sys.flags, sys.warnoptions, sys.orig_argv[1:], __debug__)",
        "import os, sys; print(sorted(os.environ.items()), sys.path)",
        "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGPIPE))",
        "import warnings; warnings.warn('old', DeprecationWarning); print(warnings.filters)",
        "print(list(globals()), input())",
        "import os; print('so far', flush=True); os._exit(5)",
        "raise KeyboardInterrupt",
        "import sys; sys.exit([1])",
    ],
)
def test_what_a_script_sees_and_ends_with_is_as_under_python(script, tmp_path, code):
    script(code)
    python = [sys.executable, "-W", "once", "-O"]
    plain, ours = (
        subprocess.run([*command, "train.py"], cwd=tmp_path, input="x\n", capture_output=True, text=True, check=False)
        for command in (python, [*python, "-m", "memfit", "run"])
    )
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode)
    assert ours.stderr.removesuffix(NO_MODEL) == plain.stderr


def test_a_script_runs_without_stderr(script, tmp_path):
    script("print('ran')\nraise SystemExit(3)")
    closed = ["sh", "-c", '"$@" 2>&-', "sh"]
    done = run(*closed, *RUN, "train.py", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("ran\n", 3)
