"""The folder a run's two processes share: its settings, its progress, and snapshots. Needs no TensorFlow.

A disk that is full or read-only costs snapshots and restarts, never the training: only `write_settings` raises.
"""

import errno
import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memfit.errors import MemfitError
from memfit.observe.events import SUFFIX
from memfit.script.settings import Settings
from memfit.script.words import say, say_once

_SETTINGS, _PROGRESS, _SOURCE = "settings.json", "progress.json", "stdin.py"
_OWN_LOOP, _TRAINED = "own-loop", "trained"
# A script may fit hundreds of models; those without a snapshot are trained again after a restart.
_MOST_SNAPSHOTS = 20


@dataclass(frozen=True)
class Progress:
    """How far the script came: its last `fit`."""

    fit: int
    """Counted from 1."""
    running: bool
    model: str
    """Its fingerprint."""
    techniques: dict[str, Any]
    """The plan in force."""
    smaller: bool
    """Whether a plan is left that needs less memory."""
    out_of_memory: str | None = None
    """TensorFlow's message, where memory ran out and the process could not recover."""


class RunFolder:
    """Files of one run, each replaced as a whole: a process that dies leaves the last complete one.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(self) -> Settings:
        """The settings of the run."""
        return Settings.from_json((self.path / _SETTINGS).read_text(encoding="utf-8"))

    def write_settings(self, settings: Settings) -> None:
        """Keep the settings of the run.

        Raises:
            OSError: If they cannot be written; the script's process cannot start without them.
        """
        self._replace(_SETTINGS, settings.to_json().encode())

    def progress(self) -> Progress | None:
        """How far the script came; `None` before its first `fit`."""
        try:
            return Progress(**json.loads((self.path / _PROGRESS).read_text(encoding="utf-8")))
        except OSError:
            return None

    def write_progress(self, progress: Progress) -> None:
        """Keep how far the script came; where that fails, none is kept, since an old one would be wrong."""
        self._mark(_TRAINED)
        try:
            self._replace(_PROGRESS, json.dumps(asdict(progress)).encode())
        except (OSError, TypeError, ValueError) as error:
            self.forget_progress()
            say_once(f"after a crash the script cannot be restarted: {_reason(error)}. Training continues")

    def begin_again(self) -> None:
        """The script is started again: until it has chosen how to train with less, another restart would not help."""
        if (progress := self.progress()) is not None:
            self.write_progress(replace(progress, smaller=False, out_of_memory=None))

    def forget_progress(self) -> None:
        """Whatever happens from now on, it is not in a `fit`."""
        with suppress(OSError):
            (self.path / _PROGRESS).unlink(missing_ok=True)

    def snapshot(self, fit: int) -> Any | None:
        """The last snapshot of a `fit`; `None` where there is none, or none that can be read."""
        try:
            # Nobody but this run writes here: the folder is the user's alone.
            return pickle.loads(self._snapshot_file(fit).read_bytes())
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 (unpickling runs code of the script's classes)
            say(f"the snapshot of fit {fit} cannot be read: {_reason(error)}. The fit starts from its beginning")
            return None

    def write_snapshot(self, fit: int, snapshot: Any) -> bool:
        """Keep a snapshot of a `fit`, in place of the one before.

        Returns:
            Whether it was written. If not, one line says why, once, and the one before stays.
        """
        try:
            content = pickle.dumps(snapshot, protocol=pickle.HIGHEST_PROTOCOL)
            self._leave_room(len(content))
            self._replace(self._snapshot_file(fit).name, content)
            self._snapshot_file(fit - _MOST_SNAPSHOTS).unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 (pickling runs code of the script's classes)
            say_no_snapshot(error)
            return False
        return True

    def note_own_loop(self) -> None:
        """Remember that the script trained in a loop of its own, without `fit`."""
        self._mark(_OWN_LOOP)

    def own_loop(self) -> bool:
        """Whether the script trained in a loop of its own."""
        return (self.path / _OWN_LOOP).exists()

    def trained(self) -> bool:
        """Whether the script called `fit`."""
        return (self.path / _TRAINED).exists()

    def piped_source(self, read: Callable[[], bytes]) -> bytes:
        """The script that came through stdin; read once, and kept for a restart."""
        try:
            return (self.path / _SOURCE).read_bytes()
        except OSError:
            source = read()
        with suppress(OSError):
            self._replace(_SOURCE, source)
        return source

    @property
    def spare_record(self) -> Path:
        """Where to record if the record cannot be written; deleted with the folder."""
        return self.path / f"run{SUFFIX}"

    def _snapshot_file(self, fit: int) -> Path:
        return self.path / f"fit-{fit}.pickle"

    def _mark(self, name: str) -> None:
        with suppress(OSError):
            (self.path / name).touch()

    def _leave_room(self, size: int) -> None:
        """Refuse to fill the disk: the script's own files need room too."""
        free = os.statvfs(self.path)
        if 2 * size > free.f_bavail * free.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def _replace(self, name: str, content: bytes) -> None:
        new = self.path / f"{name}.new"
        try:
            new.write_bytes(content)
            new.replace(self.path / name)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise


def say_no_snapshot(error: Exception) -> None:
    """Say once why snapshots cannot be taken."""
    say_once(f"no snapshot could be taken: {_reason(error)}. Training continues without it")


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())[:200].rstrip(".")
    return text if isinstance(error, OSError | MemfitError) else f"{type(error).__name__}: {text}"
