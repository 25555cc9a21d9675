"""The process that starts the script, passes signals on, and starts it again when memory has killed it.

It never imports TensorFlow: it must live when the other one dies.
"""

import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from memfit.errors import InputError
from memfit.script import child
from memfit.script.folder import Progress, RunFolder
from memfit.script.settings import Settings

# What a process dies of when TensorFlow, XLA or oneDNN find no memory and do not raise: a failed check, or a kernel
# that writes to what it was not given.
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
# Passed on where another process sends them; of those that come from the terminal the script has its own.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

Say = Callable[[str], None]


def supervise(settings: Settings, say: Say) -> int:
    """Run a script to its end, in a process of its own.

    Args:
        settings: What to run, and how.
        say: Tells the user about restarts.

    Returns:
        The exit code, or the negative number of the signal it died of.
    """
    with _shared_folder(Path(settings.record)) as folder, _signals_held():
        while True:
            folder.write_settings(settings)
            code = _ended(_start(folder))
            why = restart_reason(code, folder.progress())
            if why is None or settings.restarts == settings.most_restarts:
                return code
            settings = replace(settings, restarts=settings.restarts + 1)
            count = f"{settings.restarts} of at most {settings.most_restarts} times"
            say(f"{why}; starting it again in a smaller way ({count})")


def restart_reason(code: int, progress: Progress | None) -> str | None:
    """Why to start a script again that has ended with this code; `None` where it is not memory or would not help."""
    if code == 0 or progress is None or not progress.running or not progress.smaller:
        return None
    if progress.out_of_memory is not None:
        return f"memory ran out in fit {progress.fit}, and the process could not go on: {progress.out_of_memory}"
    if -code in _CRASHES:
        name = signal.Signals(-code).name
        return f"the process died of {name} in fit {progress.fit}, as TensorFlow's do when memory runs out"
    return None


def end_as(code: int) -> NoReturn:
    """End this process as the script's ended: with its exit code, or by its signal."""
    if code >= 0:
        sys.exit(code)
    # One core file is enough.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    sys.stdout.flush()
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    sys.exit(128 - code)


@contextmanager
def _shared_folder(record: Path) -> Iterator[RunFolder]:
    """A folder beside the record, where there is room for snapshots, until the run is over."""
    try:
        path = Path(tempfile.mkdtemp(prefix=".memfit-run-", dir=record.parent))
    except OSError as error:
        raise InputError(
            f"nothing can be written to {record.absolute().parent}: {error.strerror}. "
            "Name a record in a folder you may write to: --record runs/first.memfit.jsonl"
        ) from error
    try:
        yield RunFolder(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Have signals wait until `_ended` looks at them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
    try:
        yield
    finally:
        # One that came at the very end must not end us before the last word.
        while signal.sigtimedwait(_PASSED_ON, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(folder: RunFolder) -> int:
    command = [sys.executable, str(Path(child.__file__)), str(folder.path)]
    sys.stdout.flush()
    sys.stderr.flush()
    return os.posix_spawn(command[0], command, os.environ, setsigmask=())


def _ended(process: int) -> int:
    """Wait for a process, passing signals on to it."""
    while True:
        info = signal.sigwaitinfo((*_PASSED_ON, signal.SIGCHLD))
        if info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(process, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        elif info.si_pid not in (0, process):
            # What comes from the terminal, from nobody, was given to both of us.
            os.kill(process, info.si_signo)
