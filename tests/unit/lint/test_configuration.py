"""`[tool.memfit.lint]`: what it may say, and what is an error."""

import pytest

from memfit.errors import InputError
from memfit.lint.configuration import find_configuration
from memfit.lint.files import DEFAULT_EXCLUDE
from memfit.lint.registry import CODES, chosen, codes_of


@pytest.fixture
def configured(tmp_path):
    def write(text):
        (tmp_path / "pyproject.toml").write_text(text)
        (tmp_path / "deep" / "er").mkdir(parents=True, exist_ok=True)
        return find_configuration(tmp_path / "deep" / "er")

    return write


def test_everything_that_can_be_said(configured, tmp_path):
    found = configured(
        """
        [tool.memfit.lint]
        select = ["MF00", "missing-prefetch"]
        extend-select = ["MF020"]
        ignore = ["MF001"]
        extend-exclude = ["old"]
        per-file-ignores = { "tests/*" = ["MF"], "a.py" = ["MF002"] }
        """
    )
    assert found.root == tmp_path
    assert found.select == {*(code for code in CODES if code < "MF010"), "MF014", "MF020"}
    assert found.ignore == {"MF001"}
    assert found.exclude == (*DEFAULT_EXCLUDE, "old")
    assert found.per_file_ignores == {"tests/*": frozenset(CODES), "a.py": {"MF002"}}


def test_without_a_section_everything_is_looked_for(configured):
    found = configured("[tool.ruff]\nline-length = 3\n")
    assert found.select is None
    assert [rule.code for rule in chosen(found.select, found.ignore)] == list(CODES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ignored = []", "no key 'ignored'. Did you mean 'ignore'?"),
        ('select = ["MF912"]', "Did you mean MF012?"),
        ('select = ["cache-after-batches"]', "Did you mean cache-after-batch?"),
        ('select = "MF001"', "must be a list of strings"),
        ("per-file-ignores = 3", "must be a table"),
        ("select = [", "cannot be read"),
    ],
)
def test_what_is_not_known_is_an_error_that_names_the_nearest(configured, text, says):
    with pytest.raises(InputError) as error:
        configured(f"[tool.memfit.lint]\n{text}\n")
    assert says in str(error.value)
    assert "pyproject.toml" in str(error.value)


def test_a_section_that_is_no_table(configured):
    with pytest.raises(InputError, match="must be a table"):
        configured("[tool.memfit]\nlint = 3\n")


@pytest.mark.parametrize("wanted", ["", "M", "XX001", "MF9"])
def test_what_stands_for_no_rule(wanted):
    with pytest.raises(InputError, match="does not exist"):
        codes_of([wanted], "--select")


def test_beginnings_names_and_all():
    assert codes_of(["mf03", "ALL"], "--select") == set(CODES)
    assert codes_of(["missing-prefetch"], "--select") == {"MF014"}
