"""Which files are linted."""

import pytest

from memfit.errors import InputError
from memfit.lint.files import DEFAULT_EXCLUDE, found_in, matches


@pytest.fixture
def tree(tmp_path):
    for name in (
        "a.py", "b.ipynb", "c.txt", "sub/d.py", "sub/build/e.py", ".venv/f.py", "sub/__pycache__/g.py", "old/h.py",
        "x.py/inside.py",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


def names(tree, *paths, exclude=DEFAULT_EXCLUDE):
    given = [tree / path for path in paths] or [tree]
    return [str(path.relative_to(tree)) for path in found_in(given, exclude, tree)]


def test_folders_are_searched_and_what_is_not_ones_own_is_left_out(tree):
    assert names(tree) == ["a.py", "b.ipynb", "old/h.py", "sub/d.py", "x.py/inside.py"]
    assert names(tree, exclude=(*DEFAULT_EXCLUDE, "old")) == ["a.py", "b.ipynb", "sub/d.py", "x.py/inside.py"]
    assert names(tree, exclude=("sub/*", ".*")) == ["a.py", "b.ipynb", "old/h.py", "x.py/inside.py"]


def test_a_file_that_is_named_is_linted_once_whatever_is_excluded(tree):
    assert names(tree, ".venv/f.py", "a.py", "a.py") == [".venv/f.py", "a.py"]


def test_links_that_lead_back_are_followed_once(tree):
    (tree / "sub" / "loop").symlink_to(tree, target_is_directory=True)
    (tree / "dead.py").symlink_to(tree / "nowhere.py")
    assert names(tree) == ["a.py", "b.ipynb", "old/h.py", "sub/d.py", "x.py/inside.py"]


def test_what_is_not_there_or_of_another_kind_is_an_error(tree):
    with pytest.raises(InputError, match="is not there"):
        names(tree, "nothing.py")
    with pytest.raises(InputError, match="neither a Python file nor a notebook"):
        names(tree, "c.txt")


@pytest.mark.parametrize(
    ("path", "pattern", "does"),
    [
        ("tests/a.py", "tests/*", True),
        ("tests/deep/a.py", "tests", True),
        ("src/tests.py", "tests", False),
        ("src/a.py", "./src/", True),
        ("a_test.py", "*_test.py", True),
    ],
)
def test_patterns_of_paths(tmp_path, path, pattern, does):
    assert matches(tmp_path / path, pattern, tmp_path) is does
