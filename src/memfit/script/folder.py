"""The folder a run's two processes share: what was asked for, how far it came, and snapshots. Needs no TensorFlow."""

import json
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memfit.script.settings import Settings

_SETTINGS, _PROGRESS = "settings.json", "progress.json"
# A script may fit hundreds of models; those whose snapshot is gone are trained again after a restart.
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
    """Whether there is a smaller way to train it."""
    out_of_memory: str | None = None
    """What TensorFlow said, where memory ran out and nothing more could be done in the process."""


class RunFolder:
    """Files of one run, each replaced as a whole: whoever dies leaves the last whole one.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(self) -> Settings:
        """What was asked for."""
        return Settings.from_json((self.path / _SETTINGS).read_text(encoding="utf-8"))

    def write_settings(self, settings: Settings) -> None:
        """Keep what was asked for."""
        self._replace(_SETTINGS, settings.to_json().encode())

    def progress(self) -> Progress | None:
        """How far the script came; `None` before its first `fit`."""
        try:
            return Progress(**json.loads((self.path / _PROGRESS).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def write_progress(self, progress: Progress) -> None:
        """Keep how far the script came."""
        self._replace(_PROGRESS, json.dumps(asdict(progress)).encode())

    def forget_progress(self) -> None:
        """Whatever happens from now on, it is not in a `fit`."""
        (self.path / _PROGRESS).unlink(missing_ok=True)

    def snapshot(self, fit: int) -> Any | None:
        """The last snapshot of a `fit`; `None` where there is none."""
        try:
            # Nobody but this run writes here: the folder is the user's alone.
            return pickle.loads(self._snapshot_file(fit).read_bytes())
        except FileNotFoundError:
            return None

    def write_snapshot(self, fit: int, snapshot: Any) -> None:
        """Keep a snapshot of a `fit`, in place of the one before."""
        self._replace(self._snapshot_file(fit).name, pickle.dumps(snapshot, protocol=pickle.HIGHEST_PROTOCOL))
        self._snapshot_file(fit - _MOST_SNAPSHOTS).unlink(missing_ok=True)

    def _snapshot_file(self, fit: int) -> Path:
        return self.path / f"fit-{fit}.pickle"

    def _replace(self, name: str, content: bytes) -> None:
        new = self.path / f"{name}.new"
        new.write_bytes(content)
        new.replace(self.path / name)
