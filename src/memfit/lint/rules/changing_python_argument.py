"""MF018."""

import ast
from collections.abc import Iterator

from memfit.lint.edits import wrapped
from memfit.lint.expressions import argument
from memfit.lint.keras_code import becomes_graph, traced
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class ChangingPythonArgument(Rule):
    """A `tf.function` is called with a Python number that is another one each time.

    ## What it does
    Looks for calls of a `tf.function` of this file, in a loop over `range(...)` or `enumerate(...)`, that get the
    counter of the loop as it is. Functions with an `input_signature`, which make tensors of numbers, are left
    alone, and so are calls inside of other graphs.

    ## Why is this bad
    A Python number is part of the graph: for each new one the function is traced again, and every trace is kept.
    Measured on a CPU: 100 calls with 100 numbers made 100 traces and took 27 MiB of host memory for a forward pass
    of three small dense layers; with tensors it is one trace.

    ## Example
    ```python
    @tf.function
    def train_step(x, step): ...

    for step in range(1000):
        train_step(x, step)
    ```

    ## Use instead
    ```python
    for step in tf.range(1000, dtype=tf.int64):
        train_step(x, step)
    ```
    or `train_step(x, tf.constant(step))`.

    ## Fix safety
    The fix writes `tf.constant(step)`. It is unsafe: where the function uses the number in Python, as in `if step
    == 0` or `range(step)`, a tensor behaves differently.
    """

    code = "MF018"
    name = "changing-python-argument"
    why = "A Python number is part of the graph: each new one is traced again, and every trace is kept."
    instead = "train_step(x, tf.constant(step))"
    fixing = "unsafe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the argument."""
        if not any(module.dotted(each) == "tensorflow.function" for each in _functions(module)):
            return
        for call in module.calls:
            counters = _counters(module, call)
            if not counters or becomes_graph(module, call):
                continue
            found = traced(module, call.func)
            if found is None or _has_signature(found[1]):
                continue
            given = next((each for each in _given(call) if _is_counter(each, counters)), None)
            if given is not None:
                text = module.source.segment(given)
                name = _tensorflow(module)
                fix = None if name is None else wrapped(module, given, f"{name}.constant(", ")", safe=False)
                yield Problem(
                    given, f"`{text}` is a Python number that changes with every call of a tf.function", fix=fix
                )


def _functions(module: Module) -> Iterator[ast.expr]:
    """What may be a `tf.function`: decorators, and what is called so."""
    for function in module.outline.functions:
        for decorator in () if isinstance(function, ast.Lambda) else function.decorator_list:
            yield decorator.func if isinstance(decorator, ast.Call) else decorator
    for call in module.calls_to("function"):
        yield call.func


def _counters(module: Module, call: ast.Call) -> set[str]:
    """The names that count the turns of the loops around a call."""
    found = set()
    for loop in module.loops(call):
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
            continue
        called = loop.iter.func
        kind = called.id if isinstance(called, ast.Name) else None
        target = loop.target
        if kind == "range" and isinstance(target, ast.Name) and not _is_short(module, loop.iter):
            found.add(target.id)
        if kind == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
            found.add(target.elts[0].id)
    return found


def _is_short(module: Module, call: ast.Call) -> bool:
    """A few numbers are a few traces."""
    end = module.number(call.args[-1 if len(call.args) < 3 else 1]) if call.args else None
    return end is not None and end <= 5


def _has_signature(made: ast.expr) -> bool:
    return isinstance(made, ast.Call) and argument(made, "input_signature") is not None


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _is_counter(node: ast.expr, counters: set[str]) -> bool:
    """The counter itself, or plain arithmetic with it."""
    if isinstance(node, ast.Name):
        return node.id in counters
    if isinstance(node, ast.BinOp):
        return (_is_counter(node.left, counters) and isinstance(node.right, ast.Constant | ast.Name)) or (
            _is_counter(node.right, counters) and isinstance(node.left, ast.Constant)
        )
    return False


def _tensorflow(module: Module) -> str | None:
    """What TensorFlow is called in this file."""
    scope = module.outline.scopes[module.tree]
    for name, found in scope.bindings.items():
        if any(each.dotted == "tensorflow" for each in found):
            return name
    return None
