"""What lint found, as annotations of a GitHub workflow."""

from memfit.lint.engine import LintResult
from memfit.lint.finding import Broken, Finding


def github_annotations(result: LintResult) -> str:
    """One line for each finding and each file that could not be read."""
    return "\n".join([*map(_finding, result.findings), *map(_broken, result.broken)])


def _finding(finding: Finding) -> str:
    place = finding.place
    cell = "" if place.cell is None else f" (cell {place.cell})"
    keys = {"file": str(place.path), "line": place.line, "col": place.column, "endLine": place.end_line}
    if place.line == place.end_line:
        keys["endColumn"] = place.end_column
    keys["title"] = f"{finding.code} {finding.name}{cell}"
    return _command("warning", keys, f"{finding.message}. {finding.why} Instead: {finding.instead}")


def _broken(broken: Broken) -> str:
    cell = "" if broken.cell is None else f" (cell {broken.cell})"
    keys: dict[str, object] = {"file": str(broken.path)}
    if broken.line is not None:
        keys["line"] = broken.line
    keys["title"] = f"not linted{cell}"
    return _command("error", keys, broken.reason)


def _command(kind: str, keys: dict[str, object], message: str) -> str:
    joined = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in keys.items())
    return f"::{kind} {joined}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
