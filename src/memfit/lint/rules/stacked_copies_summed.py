"""MF031."""

import ast
from collections.abc import Iterator

from memfit.lint.edits import replaced
from memfit.lint.expressions import argument
from memfit.lint.finding import Fix
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule

_REDUCING = ("tensorflow.reduce_sum", "tensorflow.reduce_mean", "keras.ops.sum", "keras.ops.mean")
_STACKING = ("tensorflow.stack", "keras.ops.stack")


class StackedCopiesSummed(Rule):
    """Tensors are stacked in order to add them up.

    ## What it does
    Looks for `tf.reduce_sum(tf.stack(tensors), axis=0)` and the same with `reduce_mean` or `keras.ops`.

    ## Why is this bad
    The stack is a copy of all of them. Measured with TensorFlow's GPU allocator on a CPU: the sum of 16 tensors of
    4 MiB took 68 MiB more at the peak, with `tf.add_n` 4 MiB.

    ## Example
    ```python
    losses = [head(x) for head in heads]
    total = tf.reduce_sum(tf.stack(losses), axis=0)
    ```

    ## Use instead
    ```python
    total = tf.add_n(losses)
    ```

    ## Fix safety
    The fix writes `tf.add_n(...)` where a list of tensors is stacked along the first axis and summed. It is unsafe:
    numbers in the list would have to be tensors, and sums of floats may be rounded differently.
    """

    code = "MF031"
    name = "stacked-copies-summed"
    why = "The stack is a copy of all of them, made to be thrown away."
    instead = "tf.add_n(tensors), or tf.add_n(tensors) / len(tensors) for the mean"
    fixing = "unsafe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the reduction."""
        for call in module.calls_to("reduce_sum", "reduce_mean", "sum", "mean"):
            name = module.callee(call)
            if name not in _REDUCING or not call.args:
                continue
            stacked = call.args[0]
            if isinstance(stacked, ast.Name):
                stacked = self._only_use(module, stacked) or stacked
            if not isinstance(stacked, ast.Call) or module.callee(stacked) not in _STACKING or not stacked.args:
                continue
            axis, along = _axis(argument(call, "axis", 1)), _axis(argument(stacked, "axis", 1), missing=0)
            if axis is not None and axis == along and _is_list(module, stacked.args[0]):
                yield Problem(call, "tensors are stacked only to be added up", fix=_fix(module, call, stacked))

    def _only_use(self, module: Module, name: ast.Name) -> ast.expr | None:
        """What a name was assigned, where it is used for nothing else."""
        binding = module.binding(name)
        if binding is None or binding.kind != "assign" or len(module.bindings(name)) != 1:
            return None
        home = module.function(name) or module.tree
        uses = [
            each
            for each in ast.walk(home)
            if isinstance(each, ast.Name) and each.id == name.id and isinstance(each.ctx, ast.Load)
        ]
        return binding.value if len(uses) == 1 else None


def _axis(node: ast.expr | None, missing: int | None = None) -> int | None:
    if node is None:
        return missing
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _axis(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _is_list(module: Module, node: ast.expr) -> bool:
    """A list of tensors: written as one, or built by `append`. What is one tensor already cannot be unstacked."""
    made = module.settled(node)
    return isinstance(made, ast.List | ast.ListComp | ast.BinOp) or (
        isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "list"
    )


def _fix(module: Module, call: ast.Call, stacked: ast.Call) -> Fix | None:
    direct = stacked is call.args[0]
    if not direct or module.callee(call) != "tensorflow.reduce_sum" or len(call.keywords) + len(call.args) != 2:
        return None
    if _axis(argument(call, "axis", 1)) != 0 or not isinstance(stacked.func, ast.Attribute):
        return None
    tensorflow = module.source.segment(stacked.func.value)
    between = module.source.segment(call)
    text = f"{tensorflow}.add_n({module.source.segment(stacked.args[0])})"
    if "#" in between or module.dotted(stacked.func.value) != "tensorflow":
        return None
    return replaced(module, call, text, safe=False)
