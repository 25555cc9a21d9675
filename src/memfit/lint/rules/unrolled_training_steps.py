"""MF033."""

import ast
from collections.abc import Iterator

from memfit.lint.edits import replaced
from memfit.lint.keras_code import graph_decorator, tapes
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule

_FEW = 3


class UnrolledTrainingSteps(Rule):
    """Several training steps are unrolled into one graph.

    ## What it does
    Looks for a Python `range` inside of a `@tf.function` whose body computes gradients, and for
    `model.unrolled_steps_per_execution` set to more than one. Up to three turns are left alone, and so are
    `tf.range` and `steps_per_execution`, which loop inside of the graph.

    ## Why is this bad
    A Python loop is run while tracing: the graph holds the step once for each turn. Measured on a CPU: ten steps of
    a small CNN made 1,221 operations where a loop in the graph has 159, and took 595 ms to trace where it takes 158
    ms; the peak on the device was no higher. XLA compiles all of it, which takes minutes and host memory for larger
    models.

    ## Example
    ```python
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train(iterator):
        for _ in range(100):
            train_step(*next(iterator))
    ```

    ## Use instead
    ```python
    @tf.function
    def train(iterator):
        for _ in tf.range(100):
            train_step(next(iterator))
    ```
    or `model.compile(..., steps_per_execution=100)`.

    ## Fix safety
    The fix writes `tf.range`. It is unsafe: the counter becomes a tensor, and so do values that are carried on from
    turn to turn.
    """

    code = "MF033"
    name = "unrolled-training-steps"
    why = "A Python loop is run while tracing: the graph holds the whole step once for each turn."
    instead = "for _ in tf.range(steps):, or model.compile(..., steps_per_execution=steps)"
    fixing = "unsafe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the loop, or the setting."""
        for loop in module.outline.loops:
            function = module.function(loop)
            if isinstance(loop, ast.For) and function is not None and graph_decorator(module, function) is not None:
                called = loop.iter.func if isinstance(loop.iter, ast.Call) else None
                if not isinstance(called, ast.Name) or called.id != "range" or module.bindings(called):
                    continue
                if not _is_short(module, loop.iter) and _trains(module, loop):
                    fix = replaced(module, called, "tf.range", safe=False) if _has_tf(module) else None
                    yield Problem(loop.iter, "a Python range unrolls training steps into the graph", fix=fix)
        for assign in module.outline.attributes:
            target = assign.targets[0]
            number = module.number(assign.value)
            if (
                isinstance(target, ast.Attribute)
                and target.attr == "unrolled_steps_per_execution"
                and (number or 0) > 1
            ):
                yield Problem(
                    assign,
                    f"{number:.0f} steps are unrolled into one graph",
                    "model.compile(..., steps_per_execution=...)",
                )


def _is_short(module: Module, node: ast.expr) -> bool:
    number = module.number(node.args[0]) if isinstance(node, ast.Call) and len(node.args) == 1 else None
    return number is not None and number <= _FEW


def _trains(module: Module, loop: ast.For) -> bool:
    """Gradients in the loop itself, or in a function of this file that it calls."""
    if tapes(module, loop):
        return True
    for call in module.calls:
        if module.inside(call, loop):
            function = module.local_function(call.func)
            if function is not None and tapes(module, function):
                return True
    return False


def _has_tf(module: Module) -> bool:
    found = module.outline.scopes[module.tree].bindings.get("tf", [])
    return any(each.dotted == "tensorflow" for each in found)
