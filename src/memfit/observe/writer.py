"""Writing a run record: one append-only file. Needs no TensorFlow.

One JSON object per line, each appended by one write. A run that is killed leaves at most its last line cut.
"""

import errno
import json
import math
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from memfit.errors import InputError
from memfit.observe.events import SUFFIX, End, Epoch, Event, Model, Retrace, Run
from memfit.observe.growth import Doubling

# Those that come by themselves. Steps are put together before they are written, the others are few.
_THINNED = (Model, Epoch, Retrace)
# Made once: a step's line is written within the step's time.
_ENCODER = json.JSONEncoder(allow_nan=False)


class UnwritableError(InputError):
    """A record that cannot be written, for a reason of the disk or the folder."""


class RecordWriter:
    """Appends to a record file, a whole line at a time.

    Args:
        path: The file; it must not exist.
        run: The first line; `None` goes on with a file that is there.
        force: Whether to replace a file that is there.

    Raises:
        InputError: If the file is there already.
        UnwritableError: If it cannot be written.
    """

    def __init__(self, path: Path, run: Run | None, *, force: bool = False) -> None:
        self.path = path
        self._doublings: dict[type[Event], Doubling] = {}
        self._left_out: dict[tuple[type[Event], str], Event] = {}
        refuse_unwritable(path, force=force or run is None)
        try:
            # A record that is replaced is a new file: who reads the old one goes on reading the old one.
            if force and run is not None:
                path.unlink(missing_ok=True)
            made = os.O_CREAT | os.O_EXCL if run is not None else 0
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | made, 0o666)
        except OSError as error:
            raise _cannot_write(path, error) from error
        try:
            if run is not None:
                self._append(run)
            elif not path.read_bytes().endswith(b"\n"):
                # The line that was being written when the process died stays a broken one.
                os.write(self._file, b"\n")
        except OSError as error:
            self.close()
            if run is not None:
                with suppress(OSError):
                    path.unlink()
            raise _cannot_write(path, error) from error

    def write(self, event: Event) -> None:
        """Append a line; of models, epochs and retraces only every second, fourth, ... once there are many.

        The last of them that were left out come before the `End`.
        """
        if isinstance(event, _THINNED):
            slot = type(event), str(getattr(event, "phase", ""))
            if not self._doublings.setdefault(type(event), Doubling()).due():
                self._left_out[slot] = event
                return
            self._left_out.pop(slot, None)
        if isinstance(event, End):
            for last in self._left_out.values():
                self._append(last)
        self._append(event)

    def close(self) -> None:
        """Close the file; without an `End`, its reader takes the run for one that died."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, event: Event) -> None:
        if self._file < 0:
            raise ValueError(f"the record {self.path} is closed")
        content = _as_json(event.to_dict()) + b"\n"
        line = memoryview(content)
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError:
            # Half a line is on the disk, which is full: the record ends with the last complete one.
            written = len(content) - len(line)
            with suppress(OSError):
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise


def record_path(path: str | os.PathLike[str] | None) -> Path:
    """Where to record: the file that is named, or `run-DATE-TIME-PID.memfit.jsonl` in a folder or here."""
    if path is not None and not Path(path).is_dir():
        return Path(path)
    started = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    name = f"run-{started}-{os.getpid()}"
    folder = Path(path or ".")
    candidates = (folder / f"{name}{more}{SUFFIX}" for more in ("", *(f"-{number}" for number in range(2, 10_000))))
    return next(candidate for candidate in candidates if not candidate.exists())


def refuse_unwritable(path: Path, *, force: bool) -> None:
    """Say now what would go wrong when the first line is written.

    Raises:
        InputError: If the file is there already, or its folder is not or may not be written to.
    """
    if path.exists() and not force:
        raise InputError(f"the record {path} exists already. Name another file, or pass force=True to replace it.")
    if not path.parent.is_dir():
        raise UnwritableError(f"the record {path} cannot be written: there is no folder {path.parent}. Make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        read_only = os.statvfs(path.parent).f_flag & os.ST_RDONLY
        reason = errno.EROFS if read_only else errno.EACCES
        raise _cannot_write(path, OSError(reason, os.strerror(reason)))


def _cannot_write(path: Path, error: OSError) -> UnwritableError:
    reason = error.strerror or str(error)
    return UnwritableError(
        f"the record {path} cannot be written: {reason}. Name a file in a folder you may write to, such as "
        f'memfit.Recorder("runs/first{SUFFIX}").'
    )


def _as_json(values: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(values).encode()
    except ValueError:
        return _ENCODER.encode(_finite(values)).encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
