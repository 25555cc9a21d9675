"""Pipelines as lists of steps."""

import ast

import pytest
from tests.unit.lint.looking import source

from memfit.lint.module import Module
from memfit.lint.pipelines import pipeline, pipelines


def steps(snippet):
    read = Module(source(snippet))
    found = pipeline(read, read.tree.body[-1].value)
    return None if found is None else [step.method for step in found.steps]


@pytest.mark.parametrize(
    ("snippet", "methods"),
    [
        ("tf.data.Dataset.range(9).map(f).batch(3)", ["map", "batch"]),
        ("d = tf.data.Dataset.range(9)\nd = d.map(f)\nd = d.batch(3)\nd", ["map", "batch"]),
        ("d = tf.data.Dataset.range(9)\nif a:\n    d = d.shuffle(9)\nd = d.batch(3)\nd", ["shuffle", "batch"]),
        ("def p(d):\n    d = d.map(f)\n    return d.batch(3)\nd = p(tf.data.Dataset.range(9)).cache()\nd",
         ["map", "batch", "cache"]),
        ("d = tf.data.Dataset.zip((a, b)).map(f)\nd", ["map"]),
        ("import tensorflow_datasets as tfds\n(a, b), info = tfds.load('x')\na.map(f)", ["map"]),
        ("import tensorflow_datasets as tfds\nd = tfds.load('x')\nd['train'].map(f)", ["map"]),
        ("x = x\nx", None),
    ],
)  # fmt: skip
def test_steps_in_their_order(snippet, methods):
    assert steps(snippet) == methods


def test_only_what_is_surely_a_data_set_counts():
    read = Module(
        source("frame.map(f)\nnames.map(f).filter(g)\nunknown.map(f, num_parallel_calls=4)\nd.batch(3).prefetch(1)")
    )
    assert [ast.unparse(each.source) for each in pipelines(read)] == ["unknown", "d"]


def test_a_step_points_at_its_word():
    read = Module(source("d = (\n    tf.data.Dataset.range(9)\n    .map(f)\n)\n"))
    (found,) = pipelines(read)
    place = read.source.place(found.steps[0].word)
    assert read.source.line(place.line)[place.column - 1 : place.end_column - 1] == "map"
