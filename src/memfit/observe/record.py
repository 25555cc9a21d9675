"""Reading a run record, at any moment: while it is written, and after `kill -9`. Needs no TensorFlow."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memfit.errors import InputError
from memfit.observe.events import (
    SCHEMA,
    SUFFIX,
    End,
    Epoch,
    Event,
    Finding,
    Fragmentation,
    Model,
    OutOfMemory,
    Recovery,
    Retrace,
    Run,
    Steps,
    Timeline,
)

__all__ = [
    "End", "Epoch", "Event", "Finding", "Fragmentation", "Model", "OutOfMemory", "Record", "Recovery", "Retrace", "Run",
    "Steps", "Timeline", "latest_record", "read_record",
]  # fmt: skip

_KINDS: dict[str, type[Event]] = {
    each.kind: each
    for each in (Model, Steps, Epoch, Retrace, Timeline, Fragmentation, OutOfMemory, Recovery, Finding, End)
}
_BEGINNING = b'{"kind": "run", "memfit_record": '

_Line = TypeVar("_Line", bound=Event)


@dataclass(frozen=True)
class Record:
    """What a record file holds."""

    path: Path
    run: Run
    """Without any facts where the run died before the first line was whole."""
    models: tuple[Model, ...]
    """The last line of each model."""
    steps: tuple[Steps, ...]
    epochs: tuple[Epoch, ...]
    retraces: tuple[Retrace, ...]
    timelines: tuple[Timeline, ...]
    fragmentation: tuple[Fragmentation, ...]
    out_of_memory: tuple[OutOfMemory, ...]
    recoveries: tuple[Recovery, ...]
    findings: tuple[Finding, ...]
    end: End | None
    """`None` where the process died, or still runs."""
    broken_lines: int
    """Lines that could not be read, besides the last."""
    cut: bool
    """Whether the last line is not whole."""


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record, also one that is still being written or whose process was killed.

    Args:
        path: The file.

    Returns:
        All of it that is whole; unknown kinds of lines are left out, lines that cannot be read are counted.

    Raises:
        InputError: If there is no such file, it is no record, or a later memfit wrote it.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            f"there is no record {path}. A run writes one with memfit.Recorder(); latest_record(folder) finds it."
        ) from error
    except OSError as error:
        raise InputError(
            f"the record {path} cannot be read: {error.strerror}. Name a file ending in {SUFFIX}."
        ) from error
    first, *rest = data.split(b"\n")
    run = _first_line(path, first, whole=bool(rest))
    cut = bool(rest.pop() if rest else first)
    events: list[Event] = []
    broken = 0
    for line in rest:
        try:
            values = json.loads(line)
            if values["kind"] in _KINDS:
                events.append(_KINDS[values["kind"]].from_dict(values))
        except (ValueError, TypeError, KeyError, RecursionError):
            broken += 1
    return Record(
        path=path,
        run=run,
        models=tuple({model.model: model for model in _of(Model, events)}.values()),
        steps=_of(Steps, events),
        epochs=_of(Epoch, events),
        retraces=_of(Retrace, events),
        timelines=_of(Timeline, events),
        fragmentation=_of(Fragmentation, events),
        out_of_memory=_of(OutOfMemory, events),
        recoveries=_of(Recovery, events),
        findings=_of(Finding, events),
        # A run that was started again goes on after its end.
        end=events[-1] if events and isinstance(events[-1], End) else None,
        broken_lines=broken,
        cut=cut,
    )


def latest_record(folder: str | os.PathLike[str] = ".") -> Path:
    """The newest record of a folder.

    Raises:
        InputError: If there is none.
    """
    found = list(Path(folder).glob(f"*{SUFFIX}")) if Path(folder).is_dir() else []
    if not found:
        raise InputError(
            f"there is no record (*{SUFFIX}) in {Path(folder).resolve()}. Make one with: memfit run train.py, or with "
            "model.fit(..., callbacks=[memfit.Recorder()]); or name the file."
        )
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _first_line(path: Path, line: bytes, *, whole: bool) -> Run:
    # A run that was killed at once leaves nothing, or the first bytes of a first line.
    if not whole and (line.startswith(_BEGINNING) or _BEGINNING.startswith(line)):
        return Run()
    not_one = InputError(
        f"{path} is not a record of memfit: it begins with {line[:40]!r}, not with a `run` line. "
        f"Records end in {SUFFIX} and are written by memfit.Recorder()."
    )
    try:
        values = json.loads(line)
        if values["kind"] != "run" or not isinstance(values["memfit_record"], int):
            raise not_one
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise not_one from error
    if values["memfit_record"] > SCHEMA:
        raise InputError(
            f"{path} was written by a later memfit ({values.get('memfit', 'of unknown version')}): its schema is "
            f"{values['memfit_record']}, this memfit reads {SCHEMA}. Upgrade with: pip install --upgrade memfit"
        )
    try:
        return Run.from_dict(values)
    except ValueError as error:
        raise InputError(f"{path} is a damaged record: in its first line {error}. Record the run again.") from error


def _of(kind: type[_Line], events: Sequence[Event]) -> tuple[_Line, ...]:
    return tuple(event for event in events if isinstance(event, kind))
