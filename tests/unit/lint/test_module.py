"""What names are, and where they come from."""

import ast

import pytest
from tests.unit.lint.looking import source

from memfit.lint.keras_code import becomes_graph, fits, is_model
from memfit.lint.module import Module


def module(snippet):
    return Module(source(snippet, imports=""))


def last_call(read):
    return read.tree.body[-1].value


@pytest.mark.parametrize(
    ("snippet", "name"),
    [
        ("import tensorflow as tf\ntf.keras.layers.Dense(1)", "keras.layers.Dense"),
        ("from tensorflow import keras\nkeras.layers.Dense(1)", "keras.layers.Dense"),
        ("from keras import layers as L\nL.Dense(1)", "keras.layers.Dense"),
        ("from tensorflow.keras.layers import Dense as D\nD(1)", "keras.layers.Dense"),
        ("import tensorflow.keras as k\nk.models.Sequential()", "keras.Sequential"),
        ("import tf_keras\ntf_keras.Model()", "keras.Model"),
        ("from keras.layers.core import Dense\nDense(1)", "keras.layers.Dense"),
        ("from keras.layers import *\nDense(1)", "keras.layers.Dense"),
        ("import tensorflow as tf\nlayers = tf.keras.layers\nlayers.Dense(1)", "keras.layers.Dense"),
        ("import tensorflow.compat.v2 as tf\ntf.constant(1)", "tensorflow.constant"),
        ("import tensorflow as tf\ntf.math.reduce_sum(1)", "tensorflow.reduce_sum"),
        ("import tensorflow as tf\ntf.config.experimental.set_memory_growth(1)", "tensorflow.config.set_memory_growth"),
        ("try:\n    import keras\nexcept ImportError:\n    from tensorflow import keras\nkeras.Model()", "keras.Model"),
        ("def f(tf):\n    pass\ntf.constant(1)", None),
        ("from keras.layers import *\ndef Dense(n): pass\nDense(1)", None),
        ("tf = tf\ntf.constant(1)", None),
    ],
)
def test_one_name_for_each_thing(snippet, name):
    read = module(snippet)
    assert read.callee(last_call(read)) == name


def test_a_method_does_not_see_the_names_of_its_class():
    read = module("import keras\nclass A:\n    keras = 1\n    def f(self):\n        return keras.Model()\n")
    call = next(each for each in read.calls)
    assert read.callee(call) == "keras.Model"


@pytest.mark.parametrize(
    ("snippet", "value"),
    [
        ("x = 1\nx = 2\nprint(x)", "2"),
        ("x = 1\nx = x + 1\nprint(x)", "x + 1"),
        ("x, y = 1, 2\nprint(x)", "1"),
        ("x = 1\nif a:\n    x = 2\nelse:\n    x = 3\nprint(x)", "3"),
        ("def f(x):\n    pass\nx = 5\nprint(x)", "5"),
        ("if (x := 7):\n    pass\nprint(x)", "7"),
    ],
)
def test_the_last_value_before_a_use(snippet, value):
    read = module(snippet)
    assert ast.unparse(read.value(last_call(read).args[0])) == value


def test_the_other_branch_does_not_count():
    read = module("x = 1\nif a:\n    x = 2\nelse:\n    print(x)\n")
    assert read.value(read.calls[0].args[0]).value == 1


def test_a_name_with_two_values_in_the_class_is_not_told():
    read = module("class A:\n    def f(self):\n        self.x = 1\n        self.x = 2\n        print(self.x)\n")
    assert read.value(read.calls[0].args[0]) is None


def test_loops_end_at_the_function():
    read = module("for a in b:\n    def f():\n        while c:\n            g()\n")
    assert [type(loop).__name__ for loop in read.loops(read.calls[0])] == ["While"]


def test_the_head_and_the_end_of_a_loop_are_not_repeated():
    read = module("for a in f():\n    pass\nelse:\n    g()\n")
    assert [list(read.loops(call)) for call in read.calls] == [[], []]


@pytest.mark.parametrize(
    ("snippet", "is_one"),
    [
        ("import keras\nm = keras.Sequential()\nm(1)", True),
        ("import keras\ndef build():\n    return keras.Model()\nm = build()\nm(1)", True),
        ("import keras\nclass Net(keras.Model): pass\nclass Deep(Net): pass\nm = Deep()\nm(1)", True),
        ("from keras.applications import ResNet50\nm = ResNet50()\nm(1)", True),
        ("from keras.applications.resnet import preprocess_input\nm = preprocess_input()\nm(1)", False),
        ("import keras\nm = keras.layers.Dense(1)\nm(1)", False),
        ("def build():\n    return build()\nm = build()\nm(1)", False),
    ],
)
def test_models_are_told_from_other_things(snippet, is_one):
    read = module(snippet)
    assert is_model(read, last_call(read).func) is is_one


def test_the_fit_of_a_scaler_is_none_of_keras():
    read = module("import keras\nm = keras.Sequential()\nm.fit(x)\nscaler.fit(x)\nother.fit(x, epochs=3)\n")
    assert [ast.unparse(call) for call in fits(read)] == ["m.fit(x)", "other.fit(x, epochs=3)"]


def test_what_is_called_from_a_graph_is_part_of_it():
    read = module(
        """
        import tensorflow as tf
        def inner(x): first()
        def outside(x): second()
        @tf.function
        def step(x): inner(x)
        """
    )
    first, second = (call for call in read.calls if call.func.id in ("first", "second"))
    assert becomes_graph(read, first)
    assert not becomes_graph(read, second)
