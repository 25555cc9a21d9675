"""What every rule has: a code, a name, a page whose examples are right, and enough tests."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from tests.unit.lint.looking import found

from memfit.lint.registry import RULES

SECTIONS = ["What it does", "Why is this bad", "Example", "Use instead", "Fix safety"]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def code_of(rule, section):
    return re.search(rf"## {section}\n```python\n(.*?)```", rule.page(), re.DOTALL)[1]


def test_codes_and_names_are_unique_and_in_order():
    assert [rule.code for rule in RULES] == [f"MF{number:03}" for number in range(1, len(RULES) + 1)]
    assert len({rule.name for rule in RULES}) == len(RULES) >= 20


@every_rule
def test_a_rule_is_called_like_its_file(rule):
    assert Path(inspect.getfile(rule)).stem == rule.name.replace("-", "_")
    assert rule.__name__ == "".join(word.capitalize() for word in rule.name.split("-"))


@every_rule
def test_the_page_has_every_section(rule):
    assert re.findall(r"^## (.*)$", rule.page(), re.MULTILINE) == SECTIONS
    assert len(rule.why) < 125
    assert rule.summary().endswith(".")


@every_rule
def test_the_example_is_found_and_what_to_use_instead_is_not(rule):
    assert len(found(rule.code, code_of(rule, "Example"))) == 1
    assert found(rule.code, code_of(rule, "Use instead")) == ()


@every_rule
def test_the_page_says_what_the_fix_is(rule):
    safety = rule.page().partition("## Fix safety\n")[2]
    start = {"safe": "The fix ", "unsafe": "The fix ", "none": "There is no fix"}[rule.fixing]
    assert safety.startswith(start)
    assert ("is unsafe" in safety) == (rule.fixing == "unsafe")


@every_rule
def test_there_are_enough_examples_and_near_misses(rule):
    tests = importlib.import_module(f"tests.unit.lint.rules.test_{rule.name.replace('-', '_')}")
    assert len(tests.FLAGGED) >= 3
    assert len(tests.FINE) >= 3
    assert hasattr(tests, "FIXED") == (rule.fixing != "none")
    fixes = {finding.fix.safe for text in tests.FLAGGED for finding in found(rule.code, text) if finding.fix}
    assert fixes == {"safe": {True}, "unsafe": {False}, "none": set()}[rule.fixing]
