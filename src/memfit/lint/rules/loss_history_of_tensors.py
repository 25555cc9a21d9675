"""MF012."""

import ast
from collections.abc import Iterator

from memfit.lint.edits import wrapped
from memfit.lint.expressions import method_name
from memfit.lint.keras_code import becomes_graph, is_tape, is_training_step
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule
from memfit.lint.scopes import FunctionNode, LoopNode

_NUMBERS = ("numpy", "item", "result", "tolist")


class LossHistoryOfTensors(Rule):
    """The losses of a training loop are kept as tensors.

    ## What it does
    Looks, in a training loop, for `history.append(loss)` where `loss` was computed below a `GradientTape` or came
    from a function that has one, and is not made a number.

    ## Why is this bad
    Every loss is a tensor of its own on the device. Measured with TensorFlow's GPU allocator on a CPU: 10,000
    losses held 2.4 MiB of the device's memory and 7.7 MiB of host memory, as floats nearly nothing. That is little
    by itself, but the pieces lie between the large blocks of every step and keep them from being joined; and a loss
    for each sample, or a history that is kept for each batch of many epochs, is more.

    ## Example
    ```python
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for x, y in data:
        loss = train_step(x, y)
        history.append(loss)
    ```

    ## Use instead
    ```python
    for x, y in data:
        loss = train_step(x, y)
        history.append(float(loss))
    ```

    ## Fix safety
    The fix writes `float(loss)`. It is unsafe: the loss may have more than one number, and what reads the list may
    need tensors.
    """

    code = "MF012"
    name = "loss-history-of-tensors"
    why = "Every loss stays on the device as a tensor of its own, for as long as the list lives."
    instead = "history.append(float(loss))"
    fixing = "unsafe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `append`."""
        for call in module.calls_to("append"):
            if len(call.args) != 1 or not isinstance(call.func, ast.Attribute):
                continue
            loop = next(module.loops(call), None)
            if loop is None or becomes_graph(module, call) or not _is_tensor(module, call.args[0], loop):
                continue
            if _is_list_of_the_loop(module, call.func.value, list(module.loops(call))[-1]):
                continue
            kept = module.source.segment(call.func.value)
            given = module.source.segment(call.args[0])
            fix = wrapped(module, call.args[0], "float(", ")", safe=False)
            yield Problem(
                call, f"`{kept}` keeps the tensor `{given}` of every step", f"{kept}.append(float({given}))", fix
            )


def _is_list_of_the_loop(module: Module, node: ast.expr, loop: LoopNode) -> bool:
    """A list that starts anew in every turn of the outermost loop is short."""
    binding = module.binding(node) if isinstance(node, ast.Name) else None
    return binding is not None and module.inside(binding.node, loop)


def _is_tensor(module: Module, node: ast.expr, loop: LoopNode) -> bool:
    if isinstance(node, ast.Call):
        return _comes_from_step(module, node, ())
    if not isinstance(node, ast.Name):
        return False
    binding = module.binding(node)
    if binding is None or binding.value is None or binding.kind not in ("assign", "unpack"):
        return False
    if not module.inside(binding.node, loop):
        return False
    if _below_tape(module, binding.node):
        return binding.kind == "assign" and _is_computed(module, binding.value)
    return _comes_from_step(module, binding.value, binding.path)


def _below_tape(module: Module, node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.With) and any(is_tape(module, item.context_expr) for item in each.items)
        for each in module.ancestors(node)
    )


def _is_computed(module: Module, node: ast.expr) -> bool:
    """A call of TensorFlow, Keras or something that is not known to give a number."""
    if isinstance(node, ast.BinOp):
        return _is_computed(module, node.left) or _is_computed(module, node.right)
    if not isinstance(node, ast.Call) or method_name(node) in _NUMBERS:
        return False
    name = module.callee(node) or ""
    return name.startswith(("tensorflow.", "keras.")) or "loss" in module.source.segment(node.func).lower()


def _comes_from_step(module: Module, node: ast.expr, path: tuple[int, ...]) -> bool:
    """Whether a call of a training step of this file gives a tensor back at that place."""
    function = module.local_function(node.func) if isinstance(node, ast.Call) else None
    if function is None or not is_training_step(module, function):
        return False
    return any(_part_is_tensor(module, function, each, path) for each in module.returned(function))


def _part_is_tensor(module: Module, function: FunctionNode, node: ast.expr, path: tuple[int, ...]) -> bool:
    if isinstance(node, ast.Tuple):
        return len(path) == 1 and path[0] < len(node.elts) and _part_is_tensor(module, function, node.elts[path[0]], ())
    if path or not isinstance(node, ast.Name):
        return False
    binding = module.binding(node)
    return (
        binding is not None
        and binding.kind == "assign"
        and binding.value is not None
        and _below_tape(module, binding.node)
        and _is_computed(module, binding.value)
    )
