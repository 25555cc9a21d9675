"""MF011."""

import ast
import re
from collections.abc import Iterator

from memfit.lint.edits import wrapped
from memfit.lint.expressions import names_in
from memfit.lint.keras_code import becomes_graph, is_model
from memfit.lint.module import Module
from memfit.lint.pipelines import pipeline
from memfit.lint.rule import Problem, Rule
from memfit.lint.scopes import LoopNode

_DATA = re.compile(r"(^|_)(ds|data|dataset|batches|loader|generator)($|_)|dataset|iterator", re.IGNORECASE)


class TensorAppendedInLoop(Rule):
    """What a model gives out for every batch is kept as a tensor.

    ## What it does
    Looks for `outputs.append(model(x))` in a loop over a data set, where the result is not made an array.
    `model.predict` gives arrays and is left alone, and so is code that becomes a graph.

    ## Why is this bad
    A tensor stays on the device it was computed on: on a GPU, the results of a whole data set pile up beside the
    model. Measured with TensorFlow's GPU allocator on a CPU: the outputs of 200 batches of 32 with 1,000 classes
    held 24.7 MiB of the device's memory, as arrays 0.2 MiB.

    ## Example
    ```python
    model = keras.models.load_model("model.keras")
    for x, _ in dataset:
        outputs.append(model(x, training=False))
    ```

    ## Use instead
    ```python
    for x, _ in dataset:
        outputs.append(model(x, training=False).numpy())
    ```

    ## Fix safety
    The fix appends `.numpy()`. It is unsafe: what reads the list may need tensors.
    """

    code = "MF011"
    name = "tensor-appended-in-loop"
    why = "A tensor stays on the device that computed it: the results of the whole data set pile up in GPU memory."
    instead = "outputs.append(model(x, training=False).numpy())"
    fixing = "unsafe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `append`."""
        for call in module.calls_to("append"):
            if len(call.args) != 1 or becomes_graph(module, call):
                continue
            loop = next((each for each in module.loops(call) if _over_data(module, each)), None)
            made = _result(module, call.args[0], loop)
            if loop is None or made is None:
                continue
            depends = names_in(loop.target) if isinstance(loop, ast.For) else set()
            if any(_depends(module, each, depends, loop) for each in made.args):
                kept = module.source.segment(call.func.value) if isinstance(call.func, ast.Attribute) else "the list"
                fix = wrapped(module, call.args[0], "", ".numpy()", safe=False)
                yield Problem(call, f"`{kept}` keeps a tensor of every batch on the device", fix=fix)


def _over_data(module: Module, loop: LoopNode) -> bool:
    """Whether a loop goes over a whole data set; the first few batches of `take(3)` are none."""
    if not isinstance(loop, ast.For):
        return False
    given: ast.expr = loop.iter
    while isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.args:  # enumerate, tqdm
        given = given.args[0]
    found = pipeline(module, given)
    if found is not None and found.is_sure:
        return not any(step.method == "take" for step in found.steps)
    return isinstance(given, ast.Name) and _DATA.search(given.id) is not None


def _result(module: Module, node: ast.expr, loop: LoopNode | None) -> ast.Call | None:
    """The call of a model, also one that was given a name in the loop."""
    if isinstance(node, ast.Name) and loop is not None:
        binding = module.binding(node)
        if binding is None or binding.kind != "assign" or not module.inside(binding.node, loop):
            return None
        made = binding.value
    else:
        made = node
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Name | ast.Attribute) and is_model(module, made.func):
        return made
    return None


def _depends(module: Module, node: ast.expr, targets: set[str], loop: LoopNode, depth: int = 3) -> bool:
    if names_in(node) & targets:
        return True
    if depth == 0:
        return False
    bound = [module.binding(each) for each in ast.walk(node) if isinstance(each, ast.Name)]
    inside = [
        each.value for each in bound if each is not None and each.value is not None and module.inside(each.node, loop)
    ]
    return any(_depends(module, each, targets, loop, depth - 1) for each in inside)
