"""The process that starts the script, passes signals on, and starts it again when it died of memory.

It never imports TensorFlow: it must survive when the script's process dies.
"""

import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from memfit.errors import InputError
from memfit.hardware.host import host_memory, oom_kills
from memfit.script import child
from memfit.script.folder import Progress, RunFolder
from memfit.script.program import interpreter_options
from memfit.script.settings import Settings
from memfit.script.signals import CRASHES, death_line

# Passed on where another process sends them; those that come from the terminal reach the script anyway.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    """The exit code of the script, or the negative number of the signal that ended it."""
    own_loop: bool = False
    """Whether the script trained in a loop of its own, which is watched but not recorded."""
    trained: bool = False
    """Whether the script called `fit`."""


def supervise(settings: Settings, say: Say, *, look: Callable[[Path], None] | None = None) -> Ended:
    """Run a script to its end, in a process of its own.

    Args:
        settings: What to run, and how. Without a path for the record, none is left behind.
        say: Tells the user about restarts and signals.
        look: Is called with the path of the record before the folder of the run is deleted.

    Returns:
        How it ended.
    """
    with _shared_folder(settings) as folder, _signals_held() as mask:
        if not settings.record:
            settings = replace(settings, record=str(folder.spare_record))
        folder.write_settings(settings)
        first: str | None = None
        while True:
            before = oom_kills()
            code, sender = _ended(_start(folder, mask))
            line = death_line(
                code,
                sender=sender,
                before=before,
                after=oom_kills(),
                host=host_memory(),
                limit=settings.device_limit,
            )
            why = restart_reason(code, folder.progress())
            if why is None or settings.restarts == settings.most_restarts:
                if line is not None:
                    say(line)
                if first is not None and code != 0:
                    # A script may fail when it runs again, such as over a folder it made; that was not the cause.
                    say(f"it was restarted because {first}")
                break
            first = first or why
            settings = replace(settings, restarts=settings.restarts + 1)
            try:
                folder.write_settings(settings)
                folder.begin_again()
            except OSError as error:
                say(f"{why}; it cannot be restarted: {error.strerror}")
                break
            say(f"{why}; restarting with less memory (restart {settings.restarts} of at most {settings.most_restarts})")
        if look is not None:
            look(folder.spare_record if folder.spare_record.exists() else Path(settings.record))
        return Ended(code, folder.own_loop(), folder.trained())


def restart_reason(code: int, progress: Progress | None) -> str | None:
    """Why to start a script again that has ended with this code; `None` where it is not memory or would not help."""
    if code == 0 or progress is None or not progress.running or not progress.smaller:
        return None
    if progress.out_of_memory is not None:
        return f"memory ran out in fit {progress.fit}, and the process could not recover: {progress.out_of_memory}"
    if -code in CRASHES:
        name = signal.Signals(-code).name
        return f"the process was ended by {name} in fit {progress.fit}, which can happen when memory runs out"
    return None


def end_as(code: int) -> NoReturn:
    """End this process as the script's ended: with its exit code, or by its signal."""
    if code >= 0:
        sys.exit(code)
    # One core file is enough.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _flush()
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    sys.exit(128 - code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # One that is closed is `None`; one on a full disk cannot be written.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


@contextmanager
def _shared_folder(settings: Settings) -> Iterator[RunFolder]:
    """A folder that both processes can write, until the run is over: beside the record, or a temporary one."""
    path = _made_folder(settings)
    try:
        yield RunFolder(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _made_folder(settings: Settings) -> Path:
    reasons = []
    for parent in _folders(settings):
        path: Path | None = None
        try:
            path = Path(tempfile.mkdtemp(prefix=".memfit-run-", dir=parent))
            # A full disk has room for a folder, but not for what is in it.
            RunFolder(path).write_settings(settings)
            return path
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror}")
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
    raise InputError(
        f"memfit run needs a folder for a few kilobytes, and none can be written ({'; '.join(reasons)}). "
        "Name one that can be: TMPDIR=/path/to/folder memfit run train.py"
    )


def _folders(settings: Settings) -> Iterator[Path]:
    if settings.record:
        # Beside the record there is room for snapshots.
        yield Path(settings.record).absolute().parent
    try:
        yield Path(tempfile.gettempdir())
    except OSError:
        yield Path("/dev/shm")


@contextmanager
def _signals_held() -> Iterator[set[signal.Signals]]:
    """Have signals wait until `_ended` looks at them; gives the mask from before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
    try:
        yield {each for each in before if isinstance(each, signal.Signals)}
    finally:
        # One that came at the very end must not end us before the last message.
        while signal.sigtimedwait(_PASSED_ON, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(folder: RunFolder, mask: set[signal.Signals]) -> int:
    # `python -W error -O -m memfit run ...` is meant for the script.
    command = [sys.executable, *interpreter_options(sys.orig_argv), str(Path(child.__file__)), str(folder.path)]
    _flush()
    return os.posix_spawn(command[0], command, os.environ, setsigmask=mask)


def _ended(process: int) -> tuple[int, int | None]:
    """Wait for a process, passing signals on to it.

    Returns:
        Its exit code, and where a signal ended it that was passed on, the process that sent it.
    """
    senders: dict[int, int] = {}
    while True:
        info = signal.sigwaitinfo((*_PASSED_ON, signal.SIGCHLD))
        if info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(process, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code, senders.get(-code)
        elif info.si_pid not in (0, process):
            # One from the terminal, which has no sender, reached the script as well.
            senders[info.si_signo] = info.si_pid
            os.kill(process, info.si_signo)
