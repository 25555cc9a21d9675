"""MF026."""

import ast
from collections.abc import Iterator

from memfit.lint.accumulation import accumulations
from memfit.lint.expressions import method_name
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule

_SCALING = (
    "divide",
    "truediv",
    "multiply",
    "scalar_mul",
    "reduce_mean",
    "divide_no_nan",
    "clip_by_global_norm",
    "mean",
)


class AccumulatedSumNotAveraged(Rule):
    """Gradients of several small batches are summed and applied as a sum.

    ## What it does
    Looks for accumulated gradients that are applied every so many steps (`step % n == 0`, `tf.cond`) where nothing
    in the same function or class divides or scales anything. A loss that is scaled, or clipped gradients, are left
    alone.

    ## Why is this bad
    The sum over n batches is n times the gradient of the large batch it stands for: the learning rate is n times
    what was meant. Averaged, small batches are a way to save memory that does not change the training.

    ## Example
    ```python
    for step, (x, y) in enumerate(data):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        accumulated = [a + g for a, g in zip(accumulated, gradients)]
        if (step + 1) % 4 == 0:
            optimizer.apply_gradients(zip(accumulated, model.trainable_variables))
            accumulated = [tf.zeros_like(each) for each in accumulated]
    ```

    ## Use instead
    ```python
    accumulated = [a + g / 4 for a, g in zip(accumulated, gradients)]
    if (step + 1) % 4 == 0:
        optimizer.apply_gradients(zip(accumulated, model.trainable_variables))
    ```
    or `keras.optimizers.Adam(gradient_accumulation_steps=4)`, which averages.

    ## Fix safety
    There is no fix: the training changes, which is the purpose.
    """

    code = "MF026"
    name = "accumulated-sum-not-averaged"
    why = "A sum over n small batches is n times the gradient of the large batch it stands for."
    instead = "add gradient / accumulation_steps, or keras.optimizers.Adam(gradient_accumulation_steps=4)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find where they are applied."""
        for found in accumulations(module):
            if _every_so_often(module, found.applied, found.within) and not _scales(module, found.within):
                yield Problem(found.applied, f"`{found.key}` is the sum of several batches, and is applied as such")


def _every_so_often(module: Module, applied: ast.Call, within: ast.AST) -> bool:
    """Below `if step % n == 0`, or in a function that is given to `tf.cond`."""
    for each in module.ancestors(applied):
        if isinstance(each, ast.If) and module.inside(each, within):
            parts = (part for part in ast.walk(each.test) if isinstance(part, ast.BinOp))
            if any(isinstance(part.op, ast.Mod) for part in parts):
                return True
    function = module.function(applied)
    return any(
        module.callee(call) == "tensorflow.cond" and function in map(module.local_function, call.args)
        for call in module.calls_to("cond")
    )


def _scales(module: Module, within: ast.AST) -> bool:
    for each in ast.walk(within):
        scaled = isinstance(each, ast.BinOp | ast.AugAssign) and isinstance(each.op, ast.Div | ast.Mult)
        # `gradients[i] / n` by itself, as a statement, changes nothing.
        if scaled and not isinstance(module.parent(each), ast.Expr):
            return True
        if isinstance(each, ast.Call):
            name = method_name(each) or (each.func.id if isinstance(each.func, ast.Name) else "")
            if name in _SCALING and not _is_loss(module, each):
                return True
    return False


def _is_loss(module: Module, call: ast.Call) -> bool:
    """`reduce_mean` over the samples of a batch is how every loss is made."""
    statement = module.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return isinstance(target, ast.Name) and "loss" in target.id.lower()
