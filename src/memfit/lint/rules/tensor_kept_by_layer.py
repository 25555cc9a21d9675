"""MF032."""

import ast
from collections.abc import Iterator

from memfit.lint.keras_code import is_layer_class
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule

_METHODS = ("call", "train_step", "test_step")
_EMPTYING = ("clear", "pop", "popleft")


class TensorKeptByLayer(Rule):
    """A layer's `call` appends tensors to a list of the layer.

    ## What it does
    Looks for `self.something.append(...)` in the `call` of a layer or model, or in a model's `train_step`, where
    the list is not emptied or made anew in the same class outside of `__init__`. Lists of other things, such as
    names, are left alone.

    ## Why is this bad
    Run eagerly, the activations of every step stay alive, with everything they were computed from below a tape. In
    a graph the list keeps the symbolic tensors, and with them the graph of every trace.

    ## Example
    ```python
    class Encoder(keras.layers.Layer):
        def call(self, x):
            for block in self.blocks:
                x = block(x)
                self.features.append(x)
            return x
    ```

    ## Use instead
    ```python
    class Encoder(keras.layers.Layer):
        def call(self, x):
            features = []
            for block in self.blocks:
                x = block(x)
                features.append(x)
            return features
    ```

    ## Fix safety
    There is no fix: what reads the list has to get it in another way.
    """

    code = "MF032"
    name = "tensor-kept-by-layer"
    why = "The list outlives the call: the activations of every step, or the graph of every trace, stay alive."
    instead = "a list of the call itself, returned beside the result"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `append`."""
        for call in module.calls_to("append"):
            kept = call.func.value if isinstance(call.func, ast.Attribute) else None
            if not call.args or not _is_own(kept):
                continue
            function = module.function(call)
            if not isinstance(function, ast.FunctionDef) or function.name not in _METHODS:
                continue
            owner = module.parent(function)
            if not isinstance(owner, ast.ClassDef) or not is_layer_class(module, owner):
                continue
            if (
                isinstance(kept, ast.Attribute)
                and _is_tensor(module, call.args[0])
                and not _is_emptied(owner, kept.attr)
            ):
                yield Problem(call, f"`self.{kept.attr}` keeps a tensor of every call of `{owner.name}`")


def _is_own(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_tensor(module: Module, node: ast.expr) -> bool:
    made = module.settled(node)
    if isinstance(made, ast.Call):
        name = module.callee(made)
        own = isinstance(made.func, ast.Attribute) and _is_own(made.func)
        looped = (
            isinstance(made.func, ast.Name)
            and (binding := module.binding(made.func)) is not None
            and binding.kind == "loop"
        )
        return (name or "").startswith(("tensorflow.", "keras.")) or own or looped
    binding = module.binding(node) if isinstance(node, ast.Name) else None
    return binding is not None and binding.kind == "parameter"


def _is_emptied(owner: ast.ClassDef, name: str) -> bool:
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name in ("__init__", "build"):
            continue
        for each in ast.walk(method):
            if isinstance(each, ast.Assign | ast.Delete) and any(
                isinstance(target, ast.Attribute) and target.attr == name for target in each.targets
            ):
                return True
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _EMPTYING:
                emptied = each.func.value
                if isinstance(emptied, ast.Attribute) and emptied.attr == name:
                    return True
    return False
