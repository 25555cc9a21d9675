"""What is bound to which name where: one pass over a tree, in the order of the text."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
LoopNode: TypeAlias = ast.For | ast.AsyncFor | ast.While

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (ast.Module, ast.ClassDef, *FUNCTIONS, *COMPREHENSIONS)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, eq=False)
class Binding:
    """A name that gets a value.

    `value` is what it is assigned from: for `for x in data` that is `data`, for `(a, b), c = call()` it is the call,
    and `path` says which part of it (here `(0, 1)` for `b`).
    """

    name: str
    node: ast.AST
    kind: Literal["import", "assign", "unpack", "loop", "with", "parameter", "function", "class", "augmented", "other"]
    value: ast.expr | None = None
    path: tuple[int, ...] = ()
    dotted: str | None = None

    @property
    def line(self) -> int:
        """The line it is bound at."""
        return getattr(self.node, "lineno", 0)


@dataclass
class Scope:
    """The names of a module, class, function or comprehension."""

    node: ast.AST
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    """Names declared global or nonlocal."""

    def bind(self, binding: Binding) -> None:
        """Add a binding; they come in the order of the text."""
        self.bindings.setdefault(binding.name, []).append(binding)


@dataclass
class Outline:
    """A tree with what a rule asks for all the time."""

    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    functions: list[FunctionNode] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)
    loops: list[LoopNode] = field(default_factory=list)
    withs: list[ast.With] = field(default_factory=list)
    attributes: list[ast.Assign] = field(default_factory=list)
    """Assignments to `something.name`."""
    items: list[ast.Assign] = field(default_factory=list)
    """Assignments to `something[index]`."""
    deleted: list[ast.Delete] = field(default_factory=list)
    order: dict[ast.AST, int] = field(default_factory=dict)
    """The place of a node in the order of the text."""


def outline(tree: ast.Module) -> Outline:
    """Walk a tree once."""
    made = Outline()
    made.scopes[tree] = Scope(tree)
    stack: list[tuple[ast.AST, Scope]] = [(tree, made.scopes[tree])]
    parents, order = made.parents, made.order
    while stack:
        node, scope = stack.pop()
        order[node] = len(order)
        collect = _COLLECT.get(type(node))
        if collect is not None:
            inner = collect(made, node, scope)
            if inner is not None:
                scope = inner
        children = _children(node)
        for child in children:
            parents[child] = node
        children.reverse()
        stack += [(child, scope) for child in children]
    return made


def _children(node: ast.AST) -> list[ast.AST]:
    """What a node is made of, without whether it is read or written, which is a third of all nodes."""
    found: list[ast.AST] = []
    for name in node._fields:
        if name == "ctx":
            continue
        value = getattr(node, name, None)
        if type(value) is list:
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def targets(target: ast.AST, value: ast.expr | None) -> Iterator[tuple[ast.Name, ast.expr | None, tuple[int, ...]]]:
    """The names in what is assigned to, each with what it gets and which part of it."""
    if isinstance(target, ast.Name):
        yield target, value, ()
    elif isinstance(target, ast.Starred):
        for name, _, _ in targets(target.value, None):
            yield name, None, ()
    elif isinstance(target, ast.Tuple | ast.List):
        pairs = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
        for index, element in enumerate(target.elts):
            if pairs is not None:
                yield from targets(element, pairs[index])
            else:
                for name, _, path in targets(element, value):
                    yield name, value, (index, *path)


def _bind_targets(
    scope: Scope, node: ast.AST, target: ast.AST, value: ast.expr | None, kind: Literal["assign", "loop", "with"]
) -> None:
    for name, source, path in targets(target, value):
        what = "unpack" if path and kind == "assign" else kind
        scope.bind(Binding(name.id, node, what, source, path))


# How each kind of node is taken down. Where it opens a scope, that is what comes back.


def _import(_: Outline, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        if alias.asname:
            scope.bind(Binding(alias.asname, node, "import", dotted=alias.name))
        else:
            top = alias.name.partition(".")[0]
            scope.bind(Binding(top, node, "import", dotted=top))


def _import_from(made: Outline, node: ast.ImportFrom, scope: Scope) -> None:
    module = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            made.stars.append(module)
        else:
            scope.bind(Binding(alias.asname or alias.name, node, "import", dotted=f"{module}.{alias.name}"))


def _assign(made: Outline, node: ast.Assign, scope: Scope) -> None:
    for target in node.targets:
        _bind_targets(scope, node, target, node.value, "assign")
        if isinstance(target, ast.Attribute):
            made.attributes.append(node)
        elif isinstance(target, ast.Subscript):
            made.items.append(node)


def _annotated(_: Outline, node: ast.AnnAssign, scope: Scope) -> None:
    if node.value is not None:
        _bind_targets(scope, node, node.target, node.value, "assign")


def _augmented(_: Outline, node: ast.AugAssign, scope: Scope) -> None:
    if isinstance(node.target, ast.Name):
        scope.bind(Binding(node.target.id, node, "augmented", node.value))


def _named(_: Outline, node: ast.NamedExpr, scope: Scope) -> None:
    _bind_targets(scope, node, node.target, node.value, "assign")


def _loop(made: Outline, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
    made.loops.append(node)
    _bind_targets(scope, node, node.target, node.iter, "loop")


def _while(made: Outline, node: ast.While, _: Scope) -> None:
    made.loops.append(node)


def _with(made: Outline, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
    if isinstance(node, ast.With):
        made.withs.append(node)
    for item in node.items:
        if item.optional_vars is not None:
            _bind_targets(scope, node, item.optional_vars, item.context_expr, "with")


def _function(made: Outline, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Scope:
    scope.bind(Binding(node.name, node, "function"))
    return _parameters(made, node)


def _parameters(made: Outline, node: FunctionNode, _: Scope | None = None) -> Scope:
    made.functions.append(node)
    inner = made.scopes[node] = Scope(node)
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in every:
        if argument is not None:
            inner.bind(Binding(argument.arg, argument, "parameter"))
    return inner


def _class(made: Outline, node: ast.ClassDef, scope: Scope) -> Scope:
    made.classes.append(node)
    scope.bind(Binding(node.name, node, "class"))
    inner = made.scopes[node] = Scope(node)
    return inner


def _comprehension(made: Outline, node: ast.AST, _: Scope) -> Scope:
    inner = made.scopes[node] = Scope(node)
    for part in getattr(node, "generators", ()):
        for name, source, path in targets(part.target, part.iter):
            inner.bind(Binding(name.id, part.target, "loop", source, path))
    return inner


def _handler(_: Outline, node: ast.ExceptHandler, scope: Scope) -> None:
    if node.name:
        scope.bind(Binding(node.name, node, "other"))


def _elsewhere(_: Outline, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
    scope.elsewhere.update(node.names)


def _call(made: Outline, node: ast.Call, _: Scope) -> None:
    made.calls.append(node)


def _delete(made: Outline, node: ast.Delete, _: Scope) -> None:
    made.deleted.append(node)


_COLLECT: dict[type[ast.AST], Callable[[Outline, Any, Scope], Scope | None]] = {
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.NamedExpr: _named,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Lambda: _parameters,
    ast.ClassDef: _class,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.ExceptHandler: _handler,
    ast.Global: _elsewhere,
    ast.Nonlocal: _elsewhere,
    ast.Call: _call,
    ast.Delete: _delete,
}
