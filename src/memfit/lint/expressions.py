"""What is written in an expression, without knowing what its names mean."""

import ast


def argument(call: ast.Call, keyword: str, position: int | None = None) -> ast.expr | None:
    """An argument of a call by its keyword or its position."""
    for each in call.keywords:
        if each.arg == keyword:
            return each.value
    if position is not None and len(call.args) > position:
        leading = call.args[: position + 1]
        if not any(isinstance(each, ast.Starred) for each in leading):
            return leading[position]
    return None


def is_true(node: ast.AST | None) -> bool:
    """Whether an expression is written `True`."""
    return isinstance(node, ast.Constant) and node.value is True


def called_word(call: ast.Call) -> str | None:
    """The last word of what is called: `fit` for `model.fit(...)`, `len` for `len(...)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def method_name(call: ast.Call) -> str | None:
    """`fit` for `model.fit(...)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def same(one: ast.AST | None, other: ast.AST | None) -> bool:
    """Whether two expressions are written alike."""
    return one is not None and other is not None and ast.dump(one) == ast.dump(other)


def names_in(node: ast.AST) -> set[str]:
    """Every plain name that is read in an expression."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
