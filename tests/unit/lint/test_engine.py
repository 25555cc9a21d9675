"""Whole files: encodings, broken ones, allowed lines, and fixes on disk."""

import os
import stat
from pathlib import Path

import pytest

from memfit.lint.configuration import Configuration
from memfit.lint.engine import lint, lint_file

MISTAKE = 'import tensorflow as tf\ngpus = tf.config.list_physical_devices("GPU")\n{}'
CALL = "tf.config.experimental.set_memory_growth(gpus[0], True)"
TEXT = MISTAKE.format(CALL + "\n")
FIXED = MISTAKE.format("for gpu in gpus:\n    tf.config.experimental.set_memory_growth(gpu, True)\n")


def check(path, mending="none", **configuration):
    return lint_file(path, Configuration(root=path.parent, **configuration), mending=mending)


@pytest.fixture
def script(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "train.py"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return write


def codes(checked):
    return [finding.code for finding in checked.findings]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (TEXT, "utf-8"),
        (TEXT, "utf-8-sig"),
        ("# -*- coding: latin-1 -*-\n# größer\n" + TEXT, "latin-1"),
        ("#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nx = '€'\n" + TEXT, "cp1252"),
        (TEXT.replace("\n", "\r\n"), "utf-8"),
        (TEXT.replace("\n", "\r"), "utf-8"),
        ("x = '\f\u2028'  # no line ends\n\f\n" + TEXT, "utf-8"),
    ],
)
def test_a_file_in_any_dress_is_linted_and_keeps_it(script, text, encoding):
    path = script(text, encoding)
    (finding,) = check(path).findings
    assert finding.lines == (CALL,)
    assert check(path, "safe").mended == 1
    ending = "\r\n" if "\r\n" in text else "\r" if "\r" in text else "\n"
    assert path.read_bytes().decode(encoding) == text.replace(TEXT.replace("\n", ending), FIXED.replace("\n", ending))


def test_columns_count_characters(script):
    path = script(f"import tensorflow as tf\ngpus = tf.config.list_physical_devices('GPU')\nprint('größe'); {CALL}\n")
    (finding,) = check(path).findings
    assert (finding.place.line, finding.place.column) == (3, 17)


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("import keras\nx = = 1\n", "syntax error", 2),
        (b"import keras\nx = 1\0\n", "null bytes", None),
        ("# coding: nonsense\nimport keras\n", "encoding", None),
        (b"import keras\nx = '\xff'\n", "encoding", None),
        ("import keras\nx = " + "(" * 5000 + ")" * 5000, "", None),
    ],
)
def test_a_broken_file_is_told_with_its_line(script, text, reason, line):
    (broken,) = check(script(text)).broken
    assert reason in broken.reason
    if line is not None:
        assert broken.line == line


def test_a_broken_file_does_not_stop_the_rest(tmp_path):
    for name, text in (("a.py", TEXT), ("b.py", "import keras\nx = = 1"), ("c.py", TEXT)):
        (tmp_path / name).write_text(text)
    result = lint(sorted(tmp_path.iterdir()), Configuration(root=tmp_path))
    assert [finding.place.path.name for finding in result.findings] == ["a.py", "c.py"]
    assert [broken.path.name for broken in result.broken] == ["b.py"]
    assert result.exit_code == 2


def test_a_mistake_of_ours_does_not_stop_the_rest(script, monkeypatch):
    monkeypatch.setattr("memfit.lint.rules.MissingPrefetch.check", lambda self, module: 1 / 0)
    (broken,) = check(script(TEXT)).broken
    assert "a mistake of memfit's" in broken.reason


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(script):
    path = script(TEXT)
    path.chmod(0)
    assert "cannot be read" in check(path).broken[0].reason


def test_a_file_that_is_gone(tmp_path):
    assert "cannot be read" in check(tmp_path / "gone.py").broken[0].reason


@pytest.mark.parametrize("text", ["", "\n", "x = = 1", "import numpy\n"])
def test_what_has_nothing_to_do_with_tensorflow_is_not_even_parsed(script, text):
    assert check(script(text)) == check(script(b""))


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("# noqa", []),
        ("# noqa: MF022", []),
        ("#NOQA:mf022", []),
        ("# noqa: E501, MF022", []),
        ("# noqa: E501", ["MF022"]),
        ("# noqa: MF001", ["MF022"]),
        ("# see noqa.txt", ["MF022"]),
    ],
)
def test_lines_on_which_it_is_allowed(script, comment, found):
    assert codes(check(script(TEXT.replace(CALL, f"{CALL}  {comment}")))) == found


def test_a_string_that_says_noqa_allows_nothing(script):
    assert codes(check(script(TEXT.replace(CALL, f'{CALL}; print("# noqa")')))) == ["MF022"]


def test_the_last_line_of_a_finding_counts_too(script):
    text = TEXT.replace("gpus[0], True)", "\n    gpus[0],\n    True,\n)  # noqa: MF022")
    assert codes(check(script(text))) == []


def test_rules_that_are_ignored_for_a_file(script):
    path = script(TEXT)
    assert codes(check(path, per_file_ignores={"train.py": frozenset({"MF022"})})) == []
    assert codes(check(path, per_file_ignores={"test_*": frozenset({"MF022"})})) == ["MF022"]
    assert codes(check(path, select=frozenset({"MF001"}))) == []
    assert codes(check(path, ignore=frozenset({"MF022"}))) == []


def test_a_fixed_file_keeps_its_mode_and_a_link_stays_one(script, tmp_path):
    path = script(TEXT)
    path.chmod(0o751)
    link = tmp_path / "link.py"
    link.symlink_to(path)
    assert check(link, "safe").mended == 1
    assert link.is_symlink()
    assert path.read_text() == FIXED
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.py", "train.py"]


def test_unsafe_fixes_are_made_only_when_asked_for(script):
    text = "import tensorflow as tf\ntotal = tf.reduce_sum(tf.stack([a, b]), axis=0)\n"
    path = script(text)
    assert check(path, "safe").mended == 0
    assert path.read_text() == text
    assert check(path, "unsafe").mended == 1
    assert path.read_text() == "import tensorflow as tf\ntotal = tf.add_n([a, b])\n"


def test_a_fix_that_would_break_the_file_is_not_made(script, monkeypatch):
    monkeypatch.setattr("memfit.lint.engine.fixing.edited", lambda text, edits: text + "(")
    monkeypatch.setattr("memfit.lint.engine._mend.__defaults__", (lambda text, edits: text + "(",))
    path = script(TEXT)
    assert check(path, "safe").mended == 0
    assert path.read_text() == TEXT


def test_many_files_are_shared_among_processes_with_the_same_result(tmp_path):
    for number in range(200):
        (tmp_path / f"{number:03}.py").write_text(TEXT if number % 2 else "x = 1\n")
    paths = sorted(tmp_path.iterdir())
    alone = lint(paths, Configuration(root=tmp_path), processes=1)
    assert lint(paths, Configuration(root=tmp_path), processes=2) == alone
    assert len(alone.findings) == 100


def test_linting_imports_neither_tensorflow_nor_numpy():
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from memfit.lint.configuration import Configuration; "
        "from memfit.lint.engine import lint; lint([Path(sys.argv[1])], Configuration(root=Path())); "
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'keras', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(Path(__file__))], check=False).returncode == 0
