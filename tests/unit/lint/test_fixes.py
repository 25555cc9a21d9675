"""Every fix of every rule, on every example: it parses, comments survive, and a second round changes nothing."""

import importlib
import io
import pkgutil
import tokenize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lint import rules as examples
from tests.unit.lint.looking import source

from memfit.lint.engine import look
from memfit.lint.fixing import compatible, edited
from memfit.lint.registry import RULES
from memfit.lint.source import Source, parse

MODULES = [
    importlib.import_module(f"tests.unit.lint.rules.{each.name}") for each in pkgutil.iter_modules(examples.__path__)
]
SNIPPETS = [text for module in MODULES for text in (*module.FLAGGED, *module.FINE)]


def fixed(text, unsafe):
    """A text after one round of all fixes."""
    read = Source(source("").path, text, parse(text))
    fixes = compatible(look(read, RULES), unsafe=unsafe)
    return edited(text, [edit for fix in fixes for edit in fix.edits])


def settled(text, unsafe):
    for _ in range(10):
        text, before = fixed(text, unsafe), text
        if text == before:
            return text
    pytest.fail("fixes never come to an end")


def comments(text):
    return [
        each.string for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type == tokenize.COMMENT
    ]


def test_there_are_examples_of_every_rule():
    assert len(MODULES) == len(RULES)


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_fixes_parse_keep_comments_and_come_to_an_end(snippet, unsafe):
    before = source(snippet).text
    after = settled(before, unsafe)
    parse(after)
    assert comments(after) == comments(before)
    assert settled(after, unsafe) == after


@given(st.lists(st.sampled_from(SNIPPETS), min_size=2, max_size=5), st.booleans(), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=60, deadline=None)
def test_several_snippets_in_one_file(snippets, unsafe, ending):
    before = source("\n".join(f"def part_{number}():\n" + _indented(text) for number, text in enumerate(snippets))).text
    after = settled(before.replace("\n", ending), unsafe)
    parse(after)
    assert comments(after.replace(ending, "\n")) == comments(before)
    assert (ending == "\n") or "\n" not in after.replace("\r\n", "")


def _indented(text):
    import textwrap

    return textwrap.indent(textwrap.dedent(text).strip("\n"), "    ") + "\n"
