"""MF029."""

import ast
from collections.abc import Iterator

from memfit.lint.keras_code import graph_decorator, is_layer_class
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule
from memfit.lint.scopes import FunctionNode

_METHODS = ("call", "train_step", "test_step")


class VariableCreatedInStep(Rule):
    """A `tf.Variable` is created in every step.

    ## What it does
    Looks for `tf.Variable(...)` inside of a `@tf.function`, a layer's `call` or a model's `train_step`. Where it is
    made only once (`if self.weight is None:`) nothing is said.

    ## Why is this bad
    In a graph it is an error on the second trace (`tf.function only supports singleton tf.Variables created on the
    first call`). Run eagerly, every step has a variable of its own, which is not trained, and lives for as long as
    anything refers to it.

    ## Example
    ```python
    class Scale(keras.layers.Layer):
        def call(self, x):
            scale = tf.Variable(tf.ones(x.shape[-1]))
            return x * scale
    ```

    ## Use instead
    ```python
    class Scale(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.scale
    ```

    ## Fix safety
    There is no fix: the variable has to move to where things are built.
    """

    code = "MF029"
    name = "variable-created-in-step"
    why = "Every step makes a variable of its own: an error in a graph, memory that is never trained otherwise."
    instead = "create it once, in __init__ or build: self.scale = self.add_weight(shape=..., initializer=...)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the variable."""
        for call in module.calls_to("Variable"):
            if module.callee(call) != "tensorflow.Variable":
                continue
            function = next((each for each in module.functions(call) if not isinstance(each, ast.Lambda)), None)
            if function is not None and _is_step(module, function) and not _made_once(module, call, function):
                yield Problem(call, f"`{function.name}` creates a variable every time it runs")


def _is_step(module: Module, function: FunctionNode) -> bool:
    if graph_decorator(module, function) is not None:
        return True
    owner = module.parent(function)
    own = isinstance(function, ast.FunctionDef) and function.name in _METHODS
    return own and isinstance(owner, ast.ClassDef) and is_layer_class(module, owner)


def _made_once(module: Module, call: ast.Call, function: FunctionNode) -> bool:
    for each in module.ancestors(call):
        if each is function:
            return False
        if isinstance(each, ast.If):
            return True
    return False
