"""Gradient accumulation written by hand: what is added up, what is applied, what is set back."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memfit.lint.expressions import method_name
from memfit.lint.keras_code import tapes
from memfit.lint.module import Module, once


@dataclass(frozen=True)
class Accumulation:
    """A list of gradients that is added to and applied.

    `key` is how it is written, `name` or `self.name`; `within` is the function or class that holds all of it.
    """

    key: str
    within: ast.AST
    added: ast.AST
    applied: ast.Call


@once
def accumulations(module: Module) -> Iterator[Accumulation]:
    """Every accumulation of the file whose adding and applying are seen."""
    seen = set()
    for call in module.calls_to("apply_gradients"):
        if not call.args:
            continue
        key = applied_key(call)
        within = _home(module, call, key)
        if key is None or within is None or (key, within) in seen or not tapes(module, within):
            continue
        added = next((each for each in _additions(module, key, within)), None)
        if added is not None:
            seen.add((key, within))
            yield Accumulation(key, within, added, call)


def applied_key(call: ast.Call) -> str | None:
    """What `apply_gradients(zip(gradients, variables))` applies, as it is written."""
    given = call.args[0]
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id == "zip" and given.args:
        return key_of(given.args[0])
    return None


def key_of(node: ast.AST) -> str | None:
    """`name` or `self.name`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None


def _home(module: Module, call: ast.Call, key: str | None) -> ast.AST | None:
    if key is None:
        return None
    if key.startswith("self."):
        return module.owner(call)
    functions = list(module.functions(call))
    return functions[-1] if functions else module.tree


def _additions(module: Module, key: str, within: ast.AST) -> Iterator[ast.AST]:
    """`sums[i].assign_add(g)`, `a.assign_add(g)` in a loop over it, `sums = [a + g for ... in zip(...)]`."""
    for call in module.calls:
        added = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "assign_add" else None
        if added is not None and module.inside(call, within) and key in elements(module, added):
            yield call
    for node in ast.walk(within):
        if isinstance(node, ast.Assign) and key_of(node.targets[0]) == key and isinstance(node.value, ast.ListComp):
            comp = node.value
            if (
                isinstance(comp.elt, ast.BinOp)
                and isinstance(comp.elt.op, ast.Add)
                and key in _zipped(comp.generators[0].iter)
            ):
                yield node


def elements(module: Module, node: ast.expr) -> set[str]:
    """Which lists an expression is an element of: by an index, or by a loop over them."""
    if isinstance(node, ast.Subscript):
        key = key_of(node.value)
        return set() if key is None else {key}
    if isinstance(node, ast.Name):
        binding = module.binding(node)
        if binding is not None and binding.kind == "loop" and binding.value is not None:
            return _zipped(binding.value, binding.path)
    return set()


def _zipped(node: ast.expr, path: tuple[int, ...] = ()) -> set[str]:
    """The lists a loop goes over; of `zip(a, b)` the one a name belongs to, or all of them."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("zip", "enumerate"):
        if node.func.id == "enumerate":
            return _zipped(node.args[0], path[1:]) if node.args else set()
        keys = [key_of(each) for each in node.args]
        if path and path[0] < len(keys):
            keys = [keys[path[0]]]
        return {key for key in keys if key is not None}
    key = key_of(node)
    return set() if key is None else {key}


def is_reset(module: Module, found: Accumulation) -> bool:
    """Whether its elements are assigned anew anywhere, or the list is made again after it was applied."""
    for call in module.calls:
        if not module.inside(call, found.within):
            continue
        assigned = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "assign" else None
        if assigned is not None and found.key in elements(module, assigned):
            return True
        # self.reset(), reset_gradients(sums): a function that is not seen may do it.
        name = method_name(call) or (call.func.id if isinstance(call.func, ast.Name) else "")
        foreign = (module.callee(call) or "").startswith(("tensorflow.", "keras.", "numpy."))
        if not foreign and any(word in name.lower() for word in ("reset", "zero", "clear")):
            return True
    made = [
        node
        for node in ast.walk(found.within)
        if isinstance(node, ast.Assign)
        and any(key_of(target) == found.key for target in node.targets)
        and node is not found.added
    ]
    # Made once before the loops and never again is no reset; made in a loop, or in two places, is one.
    return len(made) > 1 or any(any(True for _ in module.loops(each)) for each in made)
