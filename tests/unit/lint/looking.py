"""Rules tried on snippets. `# <-` marks the lines on which something is found."""

import textwrap
from pathlib import Path

import pytest

from memfit.lint.engine import look
from memfit.lint.fixing import compatible, edited
from memfit.lint.registry import rule_called
from memfit.lint.source import Source, parse

IMPORTS = """\
import glob, os
import cv2
import numpy as np
import tensorflow as tf
import keras
from keras import layers
"""


def source(snippet, imports=IMPORTS):
    text = imports + textwrap.dedent(snippet).lstrip("\n")
    return Source(Path("train.py"), text, parse(text))


def found(code, snippet, imports=IMPORTS):
    return look(source(snippet, imports), [rule_called(code)])


def marked_lines(read):
    return [number for number in range(1, len(read.starts) + 1) if "# <-" in read.line(number)]


def flagged(code, snippets):
    """A test that the rule finds what is marked in each snippet, and nothing else."""

    @pytest.mark.parametrize("snippet", snippets)
    def test(snippet):
        marked = marked_lines(source(snippet))
        assert marked, "the snippet marks nothing"
        assert sorted({finding.place.line for finding in found(code, snippet)}) == marked

    return test


def fine(code, snippets):
    """A test that the rule finds nothing in snippets that look like the mistake."""

    @pytest.mark.parametrize("snippet", snippets)
    def test(snippet):
        assert [finding.message for finding in found(code, snippet)] == []

    return test


def mended(code, snippet, unsafe=False):
    """The snippet with all fixes made, once."""
    read = source(snippet)
    fixes = compatible(look(read, [rule_called(code)]), unsafe=unsafe)
    return edited(read.text, [edit for fix in fixes for edit in fix.edits]).removeprefix(IMPORTS)


def becomes(code, pairs, unsafe=False):
    """A test that fixes turn one text into the other, and that there is nothing left to fix afterwards."""

    @pytest.mark.parametrize(("before", "after"), pairs)
    def test(before, after):
        after = textwrap.dedent(after).lstrip("\n")
        assert mended(code, before, unsafe) == after
        assert mended(code, after, unsafe) == after
        parse(after)
        if unsafe:
            assert mended(code, before, unsafe=False) == textwrap.dedent(before).lstrip("\n")

    return test
