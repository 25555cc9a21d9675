"""MF022."""

import ast
from collections.abc import Iterator

from memfit.lint.edits import replaced
from memfit.lint.expressions import argument
from memfit.lint.finding import Fix
from memfit.lint.gpu_settings import growths
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class MemoryGrowthForOneGpu(Rule):
    """Memory growth is set for the first GPU only.

    ## What it does
    Looks for `set_memory_growth(gpus[0], True)` in a function that does not set it for other GPUs, in a file that
    does not make the others invisible (`set_visible_devices`, `CUDA_VISIBLE_DEVICES`).

    ## Why is this bad
    On a machine with several GPUs TensorFlow stops with `ValueError: Memory growth cannot differ between GPU
    devices`; on a machine without one, `gpus[0]` is an `IndexError`.

    ## Example
    ```python
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpus[0], True)
    ```

    ## Use instead
    ```python
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    ```

    ## Fix safety
    The fix writes the loop, where the call is a statement of its own. It is safe: with one GPU the same is done,
    with more of them what would be an error works.
    """

    code = "MF022"
    name = "memory-growth-for-one-gpu"
    why = "With several GPUs TensorFlow stops with an error: memory growth must be the same for all of them."
    instead = 'for gpu in tf.config.list_physical_devices("GPU"): tf.config.experimental.set_memory_growth(gpu, True)'
    fixing = "safe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the call."""
        if "VISIBLE_DEVICES" in module.source.text or "set_visible_devices" in module.source.text:
            return
        calls = list(growths(module))
        for call in calls:
            device = argument(call, "device", 0)
            beside = [each for each in calls if module.function(each) is module.function(call)]
            if len(beside) > 1 or any(True for _ in module.loops(call)):
                continue
            if isinstance(device, ast.Subscript) and _is_zero(device.slice) and _lists_gpus(module, device.value):
                gpus = module.source.segment(device.value)
                yield Problem(call, f"memory growth is set for `{gpus}[0]` alone", fix=_loop(module, call, device))


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _lists_gpus(module: Module, node: ast.expr) -> bool:
    made = module.settled(node)
    if not isinstance(made, ast.Call) or module.callee(made) != "tensorflow.config.list_physical_devices":
        return False
    kind = argument(made, "device_type", 0)
    return isinstance(kind, ast.Constant) and str(kind.value).upper() == "GPU"


def _loop(module: Module, call: ast.Call, device: ast.Subscript) -> Fix | None:
    statement = module.parent(call)
    if not isinstance(statement, ast.Expr) or call.lineno != call.end_lineno:
        return None
    line = module.source.line(call.lineno)
    indent = line[: len(line) - len(line.lstrip())]
    start = module.source.column(call.lineno, call.col_offset)
    rest = line[module.source.column(call.lineno, call.end_col_offset or 0) :].strip()
    alone = not line[:start].strip() and (not rest or rest.startswith("#"))
    taken = any("gpu" in scope.bindings for scope in module.outline.scopes.values())
    if not alone or taken:
        return None
    inner, outer = module.source.segment(device), module.source.segment(device.value)
    text = module.source.segment(call).replace(inner, "gpu", 1)
    deeper = "\t" if indent.startswith("\t") else "    "
    return replaced(module, call, f"for gpu in {outer}:\n{indent}{deeper}{text}", safe=True)
