"""MF017."""

import ast
from collections.abc import Iterator

from memfit.lint.keras_code import becomes_graph, graph_decorator, tapes
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class FunctionDefinedInLoop(Rule):
    """A `tf.function` is made anew in every turn of a loop.

    ## What it does
    Looks for `@tf.function` on a function that is defined in a loop, or inside of a training step that calls it and
    is itself called in a loop, and for `tf.function(...)` that is called in a loop.

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
            if decorator is None or isinstance(function, ast.Lambda):
                continue
            if any(True for _ in module.loops(function)):
                yield Problem(decorator, "a tf.function is defined in every turn of the loop")
            elif (outer := _called_in_loop(module, function)) is not None:
                message = f"a tf.function is defined every time `{outer.name}` runs, and that is called in a loop"
                yield Problem(decorator, message)
        for call in module.calls_to("function"):
            if module.callee(call) != "tensorflow.function" or not call.args or becomes_graph(module, call):
                continue
            # In a table of several functions, each is made once.
            if any(True for _ in module.loops(call)) and not _is_kept(module, call):
                yield Problem(call, "a tf.function is made in every turn of the loop")


def _called_in_loop(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef | None:
    """The training step that defines and calls a `tf.function`, gives it to nobody, and is called in a loop."""
    outer = module.parent(function)
    if not isinstance(outer, ast.FunctionDef) or becomes_graph(module, outer) or not tapes(module, outer):
        return None
    names = [each for each in ast.walk(outer) if isinstance(each, ast.Name) and each.id == function.name]
    called = [each for each in names if isinstance(up := module.parent(each), ast.Call) and up.func is each]
    if not called or len(called) != len(names):
        return None
    looped = (
        call
        for call in module.calls_to(outer.name)
        if module.local_function(call.func) is outer and any(True for _ in module.loops(call))
    )
    return outer if any(True for _ in looped) else None


def _is_kept(module: Module, call: ast.Call) -> bool:
    """Whether the function goes into a table or is given to somebody: one for each thing that is looped over."""
    above = module.parent(call)
    if isinstance(above, ast.Assign):
        return not all(isinstance(each, ast.Name) for each in above.targets)
    return not (isinstance(above, ast.Call) and above.func is call)
