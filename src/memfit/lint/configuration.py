"""`[tool.memfit.lint]` in pyproject.toml."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from memfit.errors import InputError
from memfit.lint.files import DEFAULT_EXCLUDE
from memfit.lint.registry import codes_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE = "pyproject.toml"
_KEYS = ("exclude", "extend-exclude", "extend-select", "ignore", "per-file-ignores", "select")


@dataclass(frozen=True)
class Configuration:
    """What is looked for, and where. Patterns of paths count from `root`."""

    root: Path
    select: frozenset[str] | None = None
    """`None` is every rule."""
    ignore: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    per_file_ignores: Mapping[str, frozenset[str]] = field(default_factory=dict)


def find_configuration(start: Path) -> Configuration:
    """The configuration of the nearest `pyproject.toml` at or above a folder that has one for lint.

    Raises:
        InputError: If it says something that is not known.
    """
    start = start.absolute()
    folder = start if start.is_dir() else start.parent
    for each in (folder, *folder.parents):
        file = each / _FILE
        if file.is_file():
            section = _section(file)
            if section is not None:
                return _configuration(file, section)
    return Configuration(root=folder)


def _section(file: Path) -> Mapping[str, Any] | None:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{str(file)!r} cannot be read: {error}. Mend it, or lint with --no-config.") from error
    section = data.get("tool", {}).get("memfit", {})
    if not isinstance(section, dict) or "lint" not in section:
        return None
    if not isinstance(section["lint"], dict):
        raise InputError(f"{file}: [tool.memfit.lint] must be a table, and is {section['lint']!r}.")
    return section["lint"]


def _configuration(file: Path, section: Mapping[str, Any]) -> Configuration:
    for key in section:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise InputError(f"{file}: [tool.memfit.lint] has no key {key!r}. {hint}There are: {', '.join(_KEYS)}.")

    def codes(key: str) -> frozenset[str]:
        return codes_of(_words(file, key, section.get(key, [])), f"{file}: {key}")

    select = codes("select") if "select" in section else None
    if select is not None:
        select |= codes("extend-select")
    exclude = _words(file, "exclude", section["exclude"]) if "exclude" in section else DEFAULT_EXCLUDE
    per_file = section.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise InputError(f'{file}: per-file-ignores must be a table such as {{ "tests/*" = ["MF012"] }}.')
    return Configuration(
        root=file.parent,
        select=select,
        ignore=codes("ignore"),
        exclude=(*exclude, *_words(file, "extend-exclude", section.get("extend-exclude", []))),
        per_file_ignores={
            pattern: codes_of(_words(file, "per-file-ignores", each), f"{file}: per-file-ignores")
            for pattern, each in per_file.items()
        },
    )


def _words(file: Path, key: str, value: object) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InputError(f"{file}: {key} must be a list of strings, and is {value!r}.")
    return tuple(value)
