"""MF024."""

import ast
import re
from collections.abc import Iterator

from memfit.lint.expressions import method_name
from memfit.lint.keras_code import tapes
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule
from memfit.lint.scopes import FUNCTIONS, FunctionNode

_STEPS = re.compile(r"accum", re.IGNORECASE)


class DivisionWithoutAccumulation(Rule):
    """Gradients are divided by a number of accumulation steps, and applied at once.

    ## What it does
    Looks for functions in which a loss or gradients are divided by something called like `accumulation_steps`, in
    which `apply_gradients` follows, and in which nothing is added up: neither there nor in the class around it.

    ## Why is this bad
    It looks like gradient accumulation and is none: every small batch is applied by itself, with a learning rate
    that is divided. The memory of the small batch is saved, the result of the large one is not had.

    ## Example
    ```python
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x))
        gradients = tape.gradient(loss / accumulation_steps, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    ```

    ## Use instead
    ```python
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=4)
    ```
    or `memfit.fit(model, x, y, batch_size=64, plan=memfit.Plan(micro_batch=16))`, which has the result of the whole
    batch.

    ## Fix safety
    There is no fix: the accumulation has to be written.
    """

    code = "MF024"
    name = "division-without-accumulation"
    why = "Nothing is added up: each small batch is applied by itself, with a smaller learning rate."
    instead = "keras.optimizers.Adam(gradient_accumulation_steps=4), or memfit.Plan(micro_batch=16)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the division."""
        if not _STEPS.search(module.source.text):
            return
        for function in module.outline.functions:
            if isinstance(function, ast.Lambda) or not tapes(module, function):
                continue
            if any(
                isinstance(each, FUNCTIONS) and tapes(module, each)
                for each in ast.walk(function)
                if each is not function
            ):
                continue
            if not _applies(function) or _adds_up(module, function):
                continue
            division = _division(function)
            if division is not None:
                yield Problem(
                    division, f"divided by `{module.source.segment(division.right)}`, and nothing is accumulated"
                )


def _applies(function: FunctionNode) -> bool:
    return any(isinstance(each, ast.Call) and method_name(each) == "apply_gradients" for each in ast.walk(function))


def _adds_up(module: Module, function: FunctionNode) -> bool:
    around = module.owner(function) or module.tree
    for each in ast.walk(around):
        if isinstance(each, ast.Call) and method_name(each) in ("assign_add", "accumulate", "add_n"):
            return True
        if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add) and "grad" in ast.dump(each).lower():
            return True
        if isinstance(each, ast.ListComp) and isinstance(each.elt, ast.BinOp) and isinstance(each.elt.op, ast.Add):
            return True
        if isinstance(each, ast.Name | ast.Attribute) and "accumulator" in ast.dump(each).lower():
            return True
    return False


def _division(function: FunctionNode) -> ast.BinOp | None:
    for each in ast.walk(function):
        if (
            isinstance(each, ast.BinOp)
            and isinstance(each.op, ast.Div)
            and isinstance(each.right, ast.Name | ast.Attribute)
        ):
            name = each.right.id if isinstance(each.right, ast.Name) else each.right.attr
            if _STEPS.search(name):
                return each
    return None
