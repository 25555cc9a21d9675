"""What can be said of a TARGET before any Keras is needed."""

import sys

import pytest

from memfit.trace import target
from memfit.trace.target import TargetError


@pytest.fixture(autouse=True)
def _imports(monkeypatch):
    """Put the import path and the modules back."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("text", ["models.py", "model.h5", ":build", "models.py:", ""])
def test_a_target_of_no_known_form_is_told_the_forms(text):
    with pytest.raises(TargetError, match=r"file\.py:function, package\.module:function or model\.keras"):
        target._find_function(text)


def test_a_file_is_imported_with_its_neighbours(tmp_path):
    (tmp_path / "sizes_next_door.py").write_text("WIDTH = 7\n")
    (tmp_path / "my-models.py").write_text("from sizes_next_door import WIDTH\ndef build(): return WIDTH\n")
    assert target._find_function(f"{tmp_path}/my-models.py:build")() == 7


def test_a_file_named_like_a_loaded_module_is_still_the_file(tmp_path):
    (tmp_path / "json.py").write_text("def build(): return 'mine'\n")
    assert target._find_function(f"{tmp_path}/json.py:build")() == "mine"


def test_a_function_is_looked_for_inside_classes_too(tmp_path):
    (tmp_path / "nested_target.py").write_text("class Zoo:\n    @staticmethod\n    def build(): return 1\n")
    assert target._find_function(f"{tmp_path}/nested_target.py:Zoo.build")() == 1


def test_modules_are_found_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here_package").mkdir()
    (tmp_path / "here_package" / "models.py").write_text("def build(): return 3\n")
    monkeypatch.chdir(tmp_path)
    assert target._find_function("here_package.models:build")() == 3


@pytest.mark.parametrize(
    ("source", "name", "says"),
    [
        ("def build(): pass", "biuld", "Did you mean build?"),
        ("def first(): pass\ndef second(): pass\ndef _hidden(): pass", "xyz", "It has: first, second."),
        ("value = 1", "build", "It defines no functions."),
        ("value = 1", "value", "is not a function but an int"),
        ("import no_such_module_anywhere", "build", "No module named 'no_such_module_anywhere'"),
        ("def build(:", "build", "SyntaxError"),
        ("raise RuntimeError('needs a licence')", "build", "RuntimeError: needs a licence"),
        ("import sys; sys.exit('usage: train.py DATA')", "build", "__main__"),
    ],
)
def test_a_file_without_a_usable_function_says_what_is_wrong(tmp_path, source, name, says):
    (tmp_path / "target_file.py").write_text(source)
    with pytest.raises(TargetError) as caught:
        target._find_function(f"{tmp_path}/target_file.py:{name}")
    assert says in str(caught.value)
    assert "target_file" not in sys.modules or "failed" not in str(caught.value)


def test_a_missing_file_is_named():
    with pytest.raises(TargetError, match=r"there is no file 'nowhere/models\.py'"):
        target._find_function("nowhere/models.py:build")


def test_parameters_tell_what_must_be_given():
    def build(classes, /, width, *extra, weights="imagenet", depth, **more):
        """Only its signature counts."""

    assert target._parameters(build) == {"classes": True, "width": True, "weights": False, "depth": True}


def test_parameters_of_a_class_are_those_of_its_constructor():
    class Model:
        def __new__(cls, *args, **kwargs):
            return super().__new__(cls)

        def __init__(self, width, weights=None):
            self.width = width

    assert target._parameters(Model) == {"width": True, "weights": False}


def test_arguments_that_must_be_given_are_named():
    def build(classes, depth=3):
        """Only its signature counts."""

    with pytest.raises(TargetError, match="no default: classes"):
        target._call(build, "models.py:build", None)


def test_a_function_that_needs_a_shape_asks_for_it():
    def build(input_shape):
        """Only its signature counts."""

    with pytest.raises(TargetError, match="--input"):
        target._call(build, "models.py:build", None)
