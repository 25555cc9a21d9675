"""Linting files: read, look, mend, and go on with the next whatever happened."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memfit.lint import fixing, noqa
from memfit.lint.configuration import Configuration
from memfit.lint.files import matches
from memfit.lint.finding import Broken, Edit, Finding
from memfit.lint.module import Module
from memfit.lint.notebook import Notebook, read_notebook, with_texts
from memfit.lint.registry import chosen
from memfit.lint.rule import Problem, Rule
from memfit.lint.source import (
    BrokenSourceError,
    Source,
    decode,
    line_starts,
    parse,
    position,
    read_script,
    worth_parsing,
)

Mending = Literal["none", "safe", "unsafe"]

# Starting a process takes as long as linting some dozen files.
_WORTH_A_PROCESS = 150
_CHUNK = 25
# A fix may make room for another one; more rounds than this would be two rules at odds.
_ROUNDS = 10


@dataclass(frozen=True)
class Checked:
    """What was found in one file, and how many findings were mended."""

    findings: tuple[Finding, ...] = ()
    broken: tuple[Broken, ...] = ()
    mended: int = 0


@dataclass(frozen=True)
class LintResult:
    """What was found in all files, in their order."""

    files: int
    findings: tuple[Finding, ...]
    broken: tuple[Broken, ...]
    mended: int

    @property
    def exit_code(self) -> int:
        """0 nothing, 1 findings, 2 something could not be read."""
        return 2 if self.broken else 1 if self.findings else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "files": self.files,
            "mended": self.mended,
            "findings": [finding.to_dict() for finding in self.findings],
            "broken": [each.to_dict() for each in self.broken],
        }


def lint(
    paths: Sequence[Path], configuration: Configuration, *, mending: Mending = "none", processes: int | None = None
) -> LintResult:
    """Lint files.

    Args:
        paths: The files, as `files.found_in` gives them.
        configuration: What is looked for.
        mending: Which fixes are written into the files.
        processes: How many to use; by default as many as there are processors, where the files are many.
    """
    if processes is None:
        processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = _Work(configuration, mending)
    many = len(paths) >= _WORTH_A_PROCESS and processes > 1
    with _without_collecting():
        checked = list(_mapped(work, paths, processes) if many else map(work, paths))
    return LintResult(
        files=len(paths),
        findings=tuple(finding for each in checked for finding in each.findings),
        broken=tuple(broken for each in checked for broken in each.broken),
        mended=sum(each.mended for each in checked),
    )


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Trees are a million small objects without cycles; looking for some takes as long as parsing."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _mapped(work: "_Work", paths: Sequence[Path], processes: int) -> Iterator[Checked]:
    with ProcessPoolExecutor(processes, initializer=gc.disable) as pool:
        yield from pool.map(work, paths, chunksize=_CHUNK)


@dataclass(frozen=True)
class _Work:
    """What is done with each file; it travels to other processes."""

    configuration: Configuration
    mending: Mending

    def __call__(self, path: Path) -> Checked:
        return lint_file(path, self.configuration, mending=self.mending)


def lint_file(path: Path, configuration: Configuration, *, mending: Mending = "none") -> Checked:
    """Lint one file; what goes wrong with it is part of the result."""
    rules = chosen(configuration.select, configuration.ignore | _ignored_here(path, configuration))
    try:
        data = path.read_bytes()
    except OSError as error:
        return Checked(broken=(Broken(path, f"cannot be read: {error.strerror or error}"),))
    if not worth_parsing(data):
        return Checked()
    try:
        check = _check_notebook if path.suffix == ".ipynb" else _check_script
        return check(path, data, rules, mending)
    except BrokenSourceError as error:
        return Checked(broken=(Broken(path, error.reason, error.line),))
    except RecursionError:
        return Checked(broken=(Broken(path, "nested too deeply to be looked at"),))
    except OSError as error:
        return Checked(broken=(Broken(path, f"cannot be written: {error.strerror or error}"),))
    except Exception as error:  # noqa: BLE001 - a mistake of ours in one file must not cost the others
        return Checked(broken=(Broken(path, f"a rule failed on it ({error!r}); that is a mistake of memfit's"),))


def _ignored_here(path: Path, configuration: Configuration) -> frozenset[str]:
    per_file = configuration.per_file_ignores.items()
    found = [codes for pattern, codes in per_file if matches(path, pattern, configuration.root)]
    return frozenset[str]().union(*found)


def _check_script(path: Path, data: bytes, rules: Sequence[type[Rule]], mending: Mending) -> Checked:
    source = read_script(path, data)
    findings = look(source, rules)
    if mending == "none":
        return Checked(findings)

    def again(text: str) -> tuple[Finding, ...]:
        return look(Source(path, text, parse(text), source.encoding), rules)

    text, findings, mended = _mend(source.text, findings, mending, again)
    if mended:
        fixing.replace_file(path, text.encode(source.encoding))
    return Checked(findings, mended=mended)


def _check_notebook(path: Path, data: bytes, rules: Sequence[type[Rule]], mending: Mending) -> Checked:
    raw, _ = decode(data)
    notebook = read_notebook(path, raw)
    if notebook is None:
        return Checked()
    findings = look(notebook.source, rules)
    mended = 0
    if mending != "none":

        def again(text: str) -> tuple[Finding, ...]:
            read = read_notebook(path, text)
            return () if read is None else look(read.source, rules)

        text, findings, mended = _mend(raw, findings, mending, again, _apply_to_notebook(path))
        if mended:
            fixing.replace_file(path, text.encode("utf-8"))
    return Checked(findings, notebook.broken, mended)


def _apply_to_notebook(path: Path) -> Callable[[str, Sequence[Edit]], str]:
    def apply(raw: str, edits: Sequence[Edit]) -> str:
        notebook = read_notebook(path, raw)
        return raw if notebook is None else _edited_notebook(notebook, edits)

    return apply


def _edited_notebook(notebook: Notebook, edits: Sequence[Edit]) -> str:
    """Edits of the joined text, made in the cells they belong to."""
    starts = notebook.source.starts
    by_cell: dict[int, list[Edit]] = {}
    cells = {cell.number: cell for cell in notebook.cells}
    for edit in edits:
        line = sum(start <= edit.start for start in starts)
        cell = notebook.cell_at(line)
        # A line without magics is the same in the cell, but what is above it may be shorter there.
        own = line_starts(cell.text)[line - cell.first_line]
        shift = own - starts[line - 1]
        by_cell.setdefault(cell.number, []).append(Edit(edit.start + shift, edit.end + shift, edit.text))
    return with_texts(notebook, {number: fixing.edited(cells[number].text, each) for number, each in by_cell.items()})


def _mend(
    text: str,
    findings: tuple[Finding, ...],
    mending: Mending,
    again: Callable[[str], tuple[Finding, ...]],
    apply: Callable[[str, Sequence[Edit]], str] = fixing.edited,
) -> tuple[str, tuple[Finding, ...], int]:
    """Make fixes until there are none; a round after which the text does not parse is not kept."""
    mended = 0
    for _ in range(_ROUNDS):
        fixes = fixing.compatible(findings, unsafe=mending == "unsafe")
        if not fixes:
            break
        changed = apply(text, [edit for fix in fixes for edit in fix.edits])
        try:
            left = again(changed)
        except BrokenSourceError:
            break
        text, findings, mended = changed, left, mended + len(fixes)
    return text, findings, mended


def look(source: Source, rules: Sequence[type[Rule]]) -> tuple[Finding, ...]:
    """What rules find in a text, in its order, each thing once, without what `# noqa` allows."""
    module = Module(source)
    marks = noqa.allowed(source)
    found: dict[tuple[int, int, str], Finding] = {}
    for rule in rules:
        for problem in rule().check(module):
            line, column, end_line, _ = position(problem.node)
            if not noqa.is_allowed(rule.code, range(line, end_line + 1), marks):
                found.setdefault((line, column, rule.code), _finding(source, rule, problem))
    return tuple(found[key] for key in sorted(found))


def _finding(source: Source, rule: type[Rule], problem: Problem) -> Finding:
    place = source.place(problem.node)
    first, _, last, _ = position(problem.node)
    return Finding(
        code=rule.code,
        name=rule.name,
        place=place,
        message=problem.message,
        why=rule.why,
        instead=problem.instead or rule.instead,
        lines=tuple(source.line(number) for number in range(first, last + 1)),
        fix=problem.fix,
    )
