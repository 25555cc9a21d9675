"""The last layer of a model, where it can be told."""

import ast

from memfit.lint.expressions import argument
from memfit.lint.module import Module

_SQUASHING = ("softmax", "sigmoid")


def last_layer(module: Module, model: ast.expr, depth: int = 4) -> ast.Call | None:
    """The call that makes the last layer of a `Sequential`, or of a `Model(inputs, outputs)`."""
    made = module.settled(model)
    if not isinstance(made, ast.Call) or depth == 0:
        return None
    name = module.callee(made)
    if name == "keras.Sequential":
        layers = argument(made, "layers", 0)
        added = _added(module, model)
        last = (
            added[-1]
            if added
            else layers.elts[-1]
            if isinstance(layers, ast.List | ast.Tuple) and layers.elts
            else None
        )
        return last if isinstance(last, ast.Call) else None
    if name in ("keras.Model", "keras.Functional"):
        output = argument(made, "outputs", 1)
        applied = None if output is None else module.settled(output)
        if isinstance(applied, ast.Call) and isinstance(applied.func, ast.Call):
            return applied.func
        if isinstance(applied, ast.Call) and isinstance(applied.func, ast.Name):
            layer = module.settled(applied.func)
            return layer if isinstance(layer, ast.Call) else None
        return None
    function = module.local_function(made.func) if name is None else None
    results = [] if function is None else module.returned(function)
    return last_layer(module, results[0], depth - 1) if len(results) == 1 else None


def _added(module: Module, model: ast.expr) -> list[ast.expr]:
    """What is added by `model.add(...)`, in order."""
    if not isinstance(model, ast.Name):
        return []
    found = []
    for call in module.calls:
        added = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "add" else None
        if isinstance(added, ast.Name) and added.id == model.id and call.args:
            found += [call.args[0]] if module.scope(call) is module.scope(model) else []
    return found


def squashing(module: Module, layer: ast.Call | None) -> str | None:
    """`softmax` or `sigmoid`, where a layer ends in it."""
    name = None if layer is None else module.callee(layer)
    if layer is None or name is None or not name.startswith("keras.layers."):
        return None
    kind = name.rpartition(".")[2]
    if kind == "Softmax":
        return "softmax"
    given = argument(layer, "activation", 0 if kind == "Activation" else 1 if kind == "Dense" else None)
    if isinstance(given, ast.Constant) and given.value in _SQUASHING:
        return str(given.value)
    named = (module.dotted(given) or "").rpartition(".")[2]
    return named if named in _SQUASHING else None
