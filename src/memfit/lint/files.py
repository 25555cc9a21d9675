"""Which files are linted: those that are named, and the Python files and notebooks of folders."""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from memfit.errors import InputError

SUFFIXES = (".py", ".pyi", ".ipynb")
DEFAULT_EXCLUDE = (
    ".bzr", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pytest_cache",
    ".ruff_cache", ".svn", ".tox", ".venv", "__pycache__", "__pypackages__", "build", "dist", "env", "node_modules",
    "site-packages", "venv",
)  # fmt: skip


def found_in(paths: Sequence[Path], exclude: Sequence[str], root: Path) -> list[Path]:
    """The files to lint, each once, sorted within each folder.

    Args:
        paths: Files and folders. A file that is named is linted whatever is excluded.
        exclude: Patterns of names (`build`), or of paths from the root (`notebooks/old/*`).
        root: The folder patterns of paths count from.

    Raises:
        InputError: If a path is not there, or is a file of another kind.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for file in _walk(path, exclude, root):
                found.setdefault(file)
        elif not path.exists():
            raise InputError(f"{str(path)!r} is not there. Name Python files, notebooks or folders of them.")
        elif path.suffix not in SUFFIXES:
            raise InputError(f"{str(path)!r} is neither a Python file nor a notebook ({', '.join(SUFFIXES)}).")
        else:
            found.setdefault(path)
    return list(found)


def matches(path: Path, pattern: str, root: Path) -> bool:
    """Whether a pattern means a path: by its name, by the name of a folder around it, or from the root."""
    try:
        relative = path.absolute().relative_to(root.absolute())
    except ValueError:
        relative = path
    pattern = pattern.removeprefix("./").rstrip("/")
    if "/" not in pattern:
        return any(fnmatch(part, pattern) for part in relative.parts)
    # A folder stands for what is in it.
    whole = relative.as_posix()
    return fnmatch(whole, pattern) or fnmatch(whole, f"{pattern}/*")


def _walk(folder: Path, exclude: Sequence[str], root: Path) -> Iterator[Path]:
    seen: set[tuple[int, int]] = set()  # links may lead back to where we were
    for where, folders, files in os.walk(folder, followlinks=True):
        here = Path(where)
        status = here.stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(each for each in folders if not _is_excluded(here / each, exclude, root))
        for name in sorted(files):
            path = here / name
            if name.endswith(SUFFIXES) and not _is_excluded(path, exclude, root) and path.is_file():
                yield path


def _is_excluded(path: Path, exclude: Sequence[str], root: Path) -> bool:
    named = [pattern for pattern in exclude if "/" not in pattern]
    if any(fnmatch(path.name, pattern) for pattern in named):
        return True
    return any(matches(path, pattern, root) for pattern in exclude if "/" in pattern)
