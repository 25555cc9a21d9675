"""MF020."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument, method_name
from memfit.lint.keras_code import is_model
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule
from memfit.lint.scopes import LoopNode

_FEW = 30


class PredictInLoop(Rule):
    """`predict` is called in a loop on one sample at a time.

    ## What it does
    Looks for `model.predict(...)` in a loop, on something that was made a batch of one: `x[None]`,
    `np.expand_dims(x, 0)`, `x.reshape(1, ...)`, `np.array([x])`, `x[i:i + 1]`. `predict` on a batch is left alone,
    and so are loops of up to 30 turns, which show a few results.

    ## Why is this bad
    Each call makes a data set, an iterator and callbacks for one sample. Measured on a CPU: 300 calls took 5.5 MiB
    more of host memory, calling the model took 0.3 MiB and less than a tenth of the time. Samples of different
    shapes are traced again each time as well, and every trace is kept.

    ## Example
    ```python
    model = keras.models.load_model("model.keras")
    for image in images:
        scores.append(model.predict(np.expand_dims(image, 0)))
    ```

    ## Use instead
    ```python
    scores = model.predict(images, batch_size=32)
    ```
    or, where samples come one by one, `model(image[None], training=False).numpy()`.

    ## Fix safety
    There is no fix: where the loop can be one call depends on what else is in it.
    """

    code = "MF020"
    name = "predict-in-loop"
    why = "Every call of predict makes a data set, an iterator and callbacks, and new shapes are traced and kept."
    instead = "model.predict(images, batch_size=32) once, or model(x[None], training=False).numpy()"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the call."""
        for call in module.calls_to("predict"):
            if not isinstance(call.func, ast.Attribute):
                continue
            loop = next(module.loops(call), None)
            data = argument(call, "x", 0)
            if loop is None or data is None or not _is_keras(module, call) or _is_short(module, loop):
                continue
            if _is_one(module, data, loop):
                yield Problem(call, f"predict on one sample, `{module.source.segment(data)}`, in a loop")


def _is_short(module: Module, loop: LoopNode) -> bool:
    """A few images to look at: `range(9)`, `images[:9]`, `data.take(9)`."""
    if isinstance(loop, ast.While):
        return False
    for each in ast.walk(loop.iter):
        end: ast.expr | None = None
        if isinstance(each, ast.Slice) and each.lower is None:
            end = each.upper
        elif isinstance(each, ast.Call) and method_name(each) == "take" and each.args:
            end = each.args[0]
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "range" and each.args:
            end = each.args[0] if len(each.args) == 1 else None
        elif isinstance(each, ast.List | ast.Tuple) and each is loop.iter:
            return True
        number = module.number(end)
        if number is not None and number <= _FEW:
            return True
    return False


def _is_keras(module: Module, call: ast.Call) -> bool:
    """A Keras model beyond doubt, or the keywords that only its `predict` has."""
    words = {each.arg for each in call.keywords}
    return bool(words & {"verbose", "batch_size", "steps"}) or (
        isinstance(call.func, ast.Attribute) and is_model(module, call.func.value)
    )


def _is_one(module: Module, node: ast.expr, loop: LoopNode, depth: int = 3) -> bool:
    """Whether an expression is a batch of one sample, made in the loop."""
    if depth == 0:
        return False
    if isinstance(node, ast.Name):
        binding = module.binding(node)
        return (
            binding is not None
            and binding.kind == "assign"
            and binding.value is not None
            and module.inside(binding.node, loop)
            and _is_one(module, binding.value, loop, depth - 1)
        )
    if isinstance(node, ast.Subscript):
        return _is_new_axis(module, node.slice)
    if not isinstance(node, ast.Call):
        return False
    name = module.callee(node)
    if name in ("numpy.expand_dims", "tensorflow.expand_dims"):
        axis = argument(node, "axis", 1)
        return isinstance(axis, ast.Constant) and axis.value == 0
    if name in ("numpy.array", "numpy.asarray", "tensorflow.constant", "tensorflow.convert_to_tensor"):
        given = node.args[0] if node.args else None
        return isinstance(given, ast.List) and len(given.elts) == 1 and not isinstance(given.elts[0], ast.Starred)
    if name in ("numpy.reshape", "tensorflow.reshape"):
        return len(node.args) > 1 and _starts_with_one(node.args[1])
    if name is None and method_name(node) == "reshape":
        return bool(node.args) and _starts_with_one(
            node.args[0] if len(node.args) == 1 else ast.Tuple(node.args, ast.Load())
        )
    if name is None and method_name(node) in ("astype",) and isinstance(node.func, ast.Attribute):
        return _is_one(module, node.func.value, loop, depth - 1)
    return False


def _is_new_axis(module: Module, index: ast.expr) -> bool:
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if isinstance(first, ast.Constant) and first.value is None:
        return True
    if module.dotted(first) in ("numpy.newaxis", "tensorflow.newaxis"):
        return True
    # x[i:i + 1]
    if isinstance(first, ast.Slice) and isinstance(first.upper, ast.BinOp) and isinstance(first.upper.op, ast.Add):
        one = first.upper.right
        alike = first.lower is not None and ast.dump(first.upper.left) == ast.dump(first.lower)
        return alike and isinstance(one, ast.Constant) and one.value == 1
    return False


def _starts_with_one(shape: ast.expr) -> bool:
    first = shape.elts[0] if isinstance(shape, ast.Tuple | ast.List) and shape.elts else None
    return isinstance(first, ast.Constant) and first.value == 1
