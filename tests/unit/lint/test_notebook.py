"""Notebooks: magics, cells, places, and fixes that change nothing else."""

import json
from pathlib import Path

import pytest

from memfit.lint.configuration import Configuration
from memfit.lint.engine import lint_file
from memfit.lint.notebook import read_notebook
from memfit.lint.source import BrokenSourceError

MISTAKE = [
    "gpus = tf.config.list_physical_devices('GPU')\n",
    "tf.config.experimental.set_memory_growth(gpus[0], True)  # größer",
]
FIXED = [
    MISTAKE[0],
    "for gpu in gpus:\n",
    "    tf.config.experimental.set_memory_growth(gpu, True)  # größer",
]


def notebook(*cells, **metadata):
    return {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# keras\n"]},
            *(
                {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [{"text": "5"}], "source": cell}
                for cell in cells
            ),
        ],
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def lint(path, mending="none"):
    return lint_file(path, Configuration(root=path.parent), mending=mending)


@pytest.fixture
def written(tmp_path):
    def write(*cells, indent=1, ending="\n", ascii_only=False, **metadata):
        path = tmp_path / "n.ipynb"
        path.write_text(json.dumps(notebook(*cells, **metadata), indent=indent, ensure_ascii=ascii_only) + ending)
        return path

    return write


def test_a_finding_names_the_cell_and_its_line(written):
    (finding,) = lint(written("import tensorflow as tf", MISTAKE)).findings
    assert str(finding.place).endswith("n.ipynb:cell 3:2:1")
    assert finding.to_dict()["cell"] == 3
    assert finding.lines == (MISTAKE[1],)


def test_words_about_lines_name_the_cell_too(written):
    path = written("import tensorflow as tf\nx = tf.constant(1)", "# a\n" + "".join(MISTAKE))
    (late,) = [each for each in lint(path).findings if each.code == "MF021"]
    assert "in line 2 of cell 2" in late.message


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\n!pip install keras \\\n  --upgrade\nimport tensorflow as tf",
        "if True:\n    !ls\nimport tensorflow as tf",
        "files = !ls\nhere = %pwd\nimport tensorflow as tf\ntf.constant?",
        "%%time\nimport tensorflow as tf",
        "import tensorflow as tf\nx = '''\n%not a magic\n!neither\n'''\nawait x",
    ],
)
def test_magics_are_no_errors(written, cell):
    result = lint(written(cell, MISTAKE))
    assert result.broken == ()
    assert [finding.place.cell for finding in result.findings] == [3]


def test_cells_in_other_languages_are_left_alone(written):
    result = lint(written("%%bash\nfor x in a; do echo; done", "import tensorflow as tf", MISTAKE))
    assert result.broken == ()
    assert [finding.place.cell for finding in result.findings] == [4]
    assert lint(written("library(keras)", language_info={"name": "R"})).broken == ()


def test_a_broken_cell_does_not_stop_the_others(written):
    result = lint(written("import tensorflow as tf", "x = = 1", MISTAKE))
    assert [(broken.cell, broken.line) for broken in result.broken] == [(3, 1)]
    assert [finding.place.cell for finding in result.findings] == [4]


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"cells": 3}', "keras"])
def test_what_is_no_notebook(text):
    with pytest.raises(BrokenSourceError, match="not a notebook"):
        read_notebook(Path("n.ipynb"), text)


@pytest.mark.parametrize("indent", [1, 2, None])
@pytest.mark.parametrize("ending", ["\n", ""])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("as_text", [True, False])
def test_a_fix_changes_one_cell_and_nothing_else(written, indent, ending, ascii_only, as_text):
    magic = "%matplotlib inline\nimport tensorflow as tf"
    made = ["".join(each) if as_text else each for each in (MISTAKE, FIXED)]
    path = written(magic, made[0], indent=indent, ending=ending, ascii_only=ascii_only)
    expected = json.dumps(notebook(magic, made[1]), indent=indent, ensure_ascii=ascii_only) + ending
    assert lint(path, "safe").mended == 1
    assert path.read_text() == expected
    assert lint(path, "safe").mended == 0
    assert path.read_text() == expected


def test_a_fix_below_a_magic_lands_where_it_belongs(written):
    cell = "if True:\n    ?\nimport tensorflow as tf\n" + "".join(MISTAKE)
    path = written(cell)
    assert lint(path, "safe").mended == 1
    assert json.loads(path.read_text())["cells"][1]["source"] == cell.replace(MISTAKE[1], "".join(FIXED[1:]))
