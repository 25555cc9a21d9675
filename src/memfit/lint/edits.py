"""Fixes as edits of the text. Where a comment would be lost, or a line would make no sense any more, there is none."""

import ast

from memfit.lint.finding import Edit, Fix
from memfit.lint.module import Module


def replaced(module: Module, node: ast.AST, text: str, *, safe: bool) -> Fix:
    """Another text for a node."""
    start, end = module.source.span(node)
    return Fix((Edit(start, end, text),), safe)


def wrapped(module: Module, node: ast.AST, before: str, after: str, *, safe: bool) -> Fix:
    """Something before and after a node."""
    start, end = module.source.span(node)
    return Fix((Edit(start, start, before), Edit(end, end, after)), safe)


def without_step(module: Module, call: ast.Call, *, safe: bool) -> Fix | None:
    """A chain without one of its methods; a statement that only added it goes as a whole."""
    if not isinstance(call.func, ast.Attribute):
        return None
    text = module.source.text
    statement = module.parent(call)
    if isinstance(statement, ast.Assign) and _assigns_itself(statement, call.func.value):
        return _without_line(module, statement, safe=safe)
    _, start = module.source.span(call.func.value)
    _, end = module.source.span(call)
    removed = text[start:end]
    if "#" in removed or text[start : start + 1] == ")":  # (data).cache() with brackets of its own
        return None
    return Fix((Edit(start, end, ""),), safe)


def _assigns_itself(statement: ast.Assign, value: ast.expr) -> bool:
    target = statement.targets[0]
    return (
        len(statement.targets) == 1
        and isinstance(target, ast.Name)
        and isinstance(value, ast.Name)
        and target.id == value.id
    )


def _without_line(module: Module, statement: ast.stmt, *, safe: bool) -> Fix | None:
    block = next(
        (
            each
            for _, each in ast.iter_fields(module.parent(statement) or module.tree)
            if isinstance(each, list) and statement in each
        ),
        [],
    )
    source = module.source
    start, end = source.span(statement)
    first, last = source.starts[statement.lineno - 1], statement.end_lineno or statement.lineno
    following = source.starts[last] if last < len(source.starts) else len(source.text)
    alone = not source.text[first:start].strip() and not source.text[end:following].strip()
    if len(block) < 2 or not alone or "#" in source.text[start:end]:
        return None
    return Fix((Edit(first, following, ""),), safe)


def without_keyword(module: Module, call: ast.Call, name: str, *, safe: bool) -> Fix | None:
    """A call without one of its keyword arguments."""
    arguments = [*call.args, *call.keywords]
    index = next((n for n, each in enumerate(arguments) if isinstance(each, ast.keyword) and each.arg == name), None)
    if index is None:
        return None
    start, end = module.source.span(arguments[index])
    if index:
        start = module.source.span(arguments[index - 1])[1]
    elif len(arguments) > 1:
        end = module.source.span(arguments[1])[0]
    elif module.source.text[end : end + 1] != ")":
        return None
    return None if "#" in module.source.text[start:end] else Fix((Edit(start, end, ""),), safe)
