"""Putting fixes into a text, and a text into its file."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from memfit.lint.finding import Edit, Finding, Fix


def compatible(findings: Sequence[Finding], *, unsafe: bool) -> list[Fix]:
    """The fixes that may be made together: where two touch the same text, the first one."""
    taken: list[Edit] = []
    made: list[Fix] = []
    for finding in findings:
        fix = finding.fix
        if fix is None or not (fix.safe or unsafe):
            continue
        if any(_overlap(edit, other) for edit in fix.edits for other in taken):
            continue
        taken += fix.edits
        made.append(fix)
    return made


def _overlap(one: Edit, other: Edit) -> bool:
    return one.start <= other.end and other.start <= one.end


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text with edits made; new lines get the ends the text has."""
    newline = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        text = text[: edit.start] + edit.text.replace("\n", newline) + text[edit.end :]
    return text


def replace_file(path: Path, data: bytes) -> None:
    """Write a file at once, as a whole, with the mode it had; a link stays a link."""
    target = path.resolve()
    mode = target.stat().st_mode
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(mode & 0o7777)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
