"""A parsed file and the questions rules ask about it: what a name is, where it comes from, which loops are around."""

import ast
from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from typing import Any, TypeVar

from memfit.lint.expressions import called_word
from memfit.lint.names import canonical, from_star
from memfit.lint.scopes import COMPREHENSIONS, FUNCTIONS, LOOPS, SCOPES, Binding, FunctionNode, LoopNode, Scope, outline
from memfit.lint.source import Source

_DEEPEST = 8
_Found = TypeVar("_Found")


class Module:
    """A file as rules see it. Whatever cannot be told for certain is `None`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tree = source.tree
        self.outline = outline(source.tree)
        self.calls = self.outline.calls
        self._dotted: dict[ast.AST, str | None] = {}
        self._bindings: dict[ast.Name, Binding | None] = {}
        self.memo: dict[object, Any] = {}
        """What `once` keeps."""

    # Where a node stands.

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Everything around a node, from the inside out."""
        parents = self.outline.parents
        while (parent := parents.get(node)) is not None:
            yield parent
            node = parent

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What a node is directly part of."""
        return self.outline.parents.get(node)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The statement a node is part of."""
        if isinstance(node, ast.stmt):
            return node
        return next((each for each in self.ancestors(node) if isinstance(each, ast.stmt)), None)

    def inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether a node is part of another."""
        return any(each is outer for each in self.ancestors(node))

    def function(self, node: ast.AST) -> FunctionNode | None:
        """The function a node is directly in."""
        return next((each for each in self.ancestors(node) if isinstance(each, FUNCTIONS)), None)

    def functions(self, node: ast.AST) -> Iterator[FunctionNode]:
        """Every function around a node, from the inside out."""
        return (each for each in self.ancestors(node) if isinstance(each, FUNCTIONS))

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose method a node is in."""
        return next((each for each in self.ancestors(node) if isinstance(each, ast.ClassDef)), None)

    def loops(self, node: ast.AST) -> Iterator[LoopNode]:
        """The loops that repeat a node, from the inside out, up to the function it is in."""
        inner = node
        for each in self.ancestors(node):
            if isinstance(each, (*FUNCTIONS, ast.ClassDef)):
                return
            if isinstance(each, LOOPS) and inner in each.body:
                yield each
            inner = each

    def scope(self, node: ast.AST) -> Scope:
        """The scope whose names a node sees first."""
        for each in self.ancestors(node):
            if isinstance(each, SCOPES):
                return self.outline.scopes[each]
        return self.outline.scopes[self.tree]

    def before(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether one node comes before another in the text."""
        return self.outline.order[first] < self.outline.order[second]

    def exclusive(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two nodes are in different branches of one `if` or `match`, so that only one of them runs."""
        around = {id(each): below for below, each in self._steps(one)}
        for below, each in self._steps(other):
            if id(each) not in around:
                continue
            beside = around[id(each)]
            if isinstance(each, ast.If):
                return (beside in each.orelse) != (below in each.orelse) and each.test not in (beside, below)
            if isinstance(each, ast.Match):
                return beside is not below
            return False
        return False

    def _steps(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        below = node
        for each in self.ancestors(node):
            yield below, each
            below = each

    # What a name is.

    def holders(self, name: ast.Name) -> Iterator[Scope]:
        """The scopes in which a name may be looked up, from the inside out."""
        inner = True
        for each in self.ancestors(name):
            if isinstance(each, SCOPES):
                scope = self.outline.scopes[each]
                # A method does not see the names of its class.
                if inner or not isinstance(each, ast.ClassDef):
                    yield scope
                inner = inner and isinstance(each, COMPREHENSIONS)

    def bindings(self, name: ast.Name) -> list[Binding]:
        """Every binding of a name, in the scope it belongs to."""
        for scope in self.holders(name):
            if name.id in scope.bindings and name.id not in scope.elsewhere:
                return scope.bindings[name.id]
        return []

    def binding(self, name: ast.Name) -> Binding | None:
        """The binding a name most likely has where it is used: the last one before it that is not in another branch."""
        if name not in self._bindings:
            self._bindings[name] = self._find_binding(name)
        return self._bindings[name]

    def _find_binding(self, name: ast.Name) -> Binding | None:
        own = True
        for scope in self.holders(name):
            if name.id in scope.bindings and name.id not in scope.elsewhere:
                found = scope.bindings[name.id]
                if own:
                    found = [each for each in found if self._reaches(each, name)]
                return found[-1] if found else None
            own = own and isinstance(scope.node, COMPREHENSIONS)
        return None

    def _reaches(self, binding: Binding, name: ast.Name) -> bool:
        if binding.kind in ("parameter", "import") or isinstance(binding.node, ast.Name | ast.Tuple):
            return True
        if not self.before(binding.node, name) or self.exclusive(binding.node, name):
            return False
        if binding.kind in ("assign", "unpack", "augmented"):
            return not self.inside(name, binding.node)
        return not (binding.value is not None and (name is binding.value or self.inside(name, binding.value)))

    def value(self, node: ast.expr) -> ast.expr | None:
        """What a name, or an attribute of `self` that is set once, was assigned; other expressions are themselves."""
        if isinstance(node, ast.Name):
            binding = self.binding(node)
            return binding.value if binding is not None and binding.kind == "assign" else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            values = self.attribute_values(node)
            return values[0] if len(values) == 1 else None
        return node

    def settled(self, node: ast.expr) -> ast.expr | None:
        """What is behind a name, and the name behind that, until it is no name any more."""
        current: ast.expr | None = node
        for _ in range(_DEEPEST):
            if not isinstance(current, ast.Name | ast.Attribute):
                return current
            following = self.value(current)
            if following is current:
                return current
            current = following
        return None

    def attribute_values(self, node: ast.Attribute) -> list[ast.expr]:
        """What is assigned to `self.name` anywhere in the class."""
        owner = self.owner(node)
        return [] if owner is None else self._attributes.get((owner, node.attr), [])

    @cached_property
    def _attributes(self) -> dict[tuple[ast.ClassDef, str], list[ast.expr]]:
        found: dict[tuple[ast.ClassDef, str], list[ast.expr]] = {}
        for assign in self.outline.attributes:
            for target in assign.targets:
                owner = self.owner(assign)
                if (
                    owner is not None
                    and isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    found.setdefault((owner, target.attr), []).append(assign.value)
        return found

    def dotted(self, node: ast.AST | None) -> str | None:
        """The full name of what an expression names, such as `keras.layers.Dense`; `None` for anything local."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return None
        if node not in self._dotted:
            self._dotted[node] = None  # a name that is assigned from itself ends here
            self._dotted[node] = self._find_dotted(node)
        return self._dotted[node]

    def _find_dotted(self, node: ast.Name | ast.Attribute) -> str | None:
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else canonical(f"{base}.{node.attr}")
        found = self.bindings(node)
        if not found:
            return from_star(node.id, self.outline.stars)
        imports = [canonical(each.dotted) for each in found if each.dotted is not None]
        if imports:
            known = (each for each in imports if each.split(".")[0] in ("tensorflow", "keras"))
            return next(known, imports[-1])
        if len(found) == 1 and found[0].kind == "assign":
            return self.dotted(found[0].value)
        return None

    # Calls and what they call.

    @cached_property
    def _by_word(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            if (word := called_word(call)) is not None:
                found.setdefault(word, []).append(call)
        return found

    def calls_to(self, *words: str) -> list[ast.Call]:
        """The calls whose last word is one of these, in the order of the text: `fit` for `model.fit(...)`."""
        found = [call for word in words for call in self._by_word.get(word, ())]
        return found if len(words) == 1 else sorted(found, key=self.outline.order.__getitem__)

    def callee(self, node: ast.AST | None) -> str | None:
        """The full name of what is called, where `node` is a call."""
        return self.dotted(node.func) if isinstance(node, ast.Call) else None

    def local_function(self, node: ast.AST | None) -> FunctionNode | None:
        """The function of this file that an expression names: a name, `self.method`, a lambda, a partial."""
        if isinstance(node, ast.Lambda):
            return node
        if isinstance(node, ast.Name):
            found = self.bindings(node)
            if len(found) == 1 and isinstance(found[0].node, FUNCTIONS) and found[0].kind == "function":
                return found[0].node
            if len(found) == 1 and found[0].kind == "assign" and isinstance(found[0].value, ast.Lambda | ast.Call):
                return self.local_function(found[0].value)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            owner = self.owner(node)
            return None if owner is None else self.method(owner, node.attr)
        if (
            isinstance(node, ast.Call)
            and node.args
            and self.callee(node) in ("functools.partial", "tensorflow.function")
        ):
            return self.local_function(node.args[0])
        return None

    def local_class(self, node: ast.AST | None) -> ast.ClassDef | None:
        """The class of this file that a name names."""
        if isinstance(node, ast.Name):
            found = self.bindings(node)
            if len(found) == 1 and isinstance(found[0].node, ast.ClassDef):
                return found[0].node
        return None

    def method(self, owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
        """A method a class defines itself."""
        return next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == name), None)

    def returned(self, function: FunctionNode) -> list[ast.expr]:
        """What a function returns, at each place where it does."""
        if isinstance(function, ast.Lambda):
            return [function.body]
        return [
            each.value
            for each in ast.walk(function)
            if isinstance(each, ast.Return) and each.value is not None and self.function(each) is function
        ]

    def called_in(self, node: ast.AST, depth: int = 2) -> frozenset[str]:
        """The full names of all that is called in a function, also in functions of this file that it calls."""
        found: set[str] = set()
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                name = self.callee(each)
                if name is not None:
                    found.add(name)
                elif depth and (function := self.local_function(each.func)) is not None and function is not node:
                    found |= self.called_in(function, depth - 1)
        return frozenset(found)

    def number(self, node: ast.AST | None) -> float | None:
        """The number an expression is, also through names that are set once."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return node.value
        if isinstance(node, ast.Name) and len(found := self.bindings(node)) == 1 and found[0].kind == "assign":
            return self.number(found[0].value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = self.number(node.left), self.number(node.right)
            return None if left is None or right is None else left * right
        return None


def once(look: Callable[[Module], Iterator[_Found]]) -> Callable[[Module], tuple[_Found, ...]]:
    """Look at a file once, however many rules ask for it."""

    @wraps(look)
    def kept(module: Module) -> tuple[_Found, ...]:
        if look not in module.memo:
            module.memo[look] = tuple(look(module))
        found: tuple[_Found, ...] = module.memo[look]
        return found

    return kept
