"""What of a file is Keras and TensorFlow: models, layers, calls of `fit`, functions that become graphs."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument
from memfit.lint.module import Module, once
from memfit.lint.scopes import FUNCTIONS, FunctionNode

_MODELS = tuple(f"keras.{name}" for name in "Model Sequential Functional models.load_model models.clone_model".split())
_LAYER_BASES = ("keras.Layer", "keras.layers.Layer")
# Keywords that `fit` has and the `fit` of scikit-learn has not.
_FIT_WORDS = frozenset(
    "epochs batch_size validation_data validation_split callbacks steps_per_epoch initial_epoch".split()
)
# Keras calls these inside a graph of its own.
_GRAPH_METHODS = ("call", "train_step", "test_step", "predict_step", "compute_loss")
_DEEPEST = 3


def is_model(module: Module, node: ast.expr | None, depth: int = _DEEPEST) -> bool:
    """Whether an expression is surely a Keras model."""
    if node is None or depth == 0:
        return False
    if isinstance(node, ast.Name | ast.Attribute):
        made = module.settled(node)
        return made is not node and is_model(module, made, depth)
    return isinstance(node, ast.Call) and makes_model(module, node, depth)


def makes_model(module: Module, call: ast.Call, depth: int = _DEEPEST) -> bool:
    """Whether a call builds a Keras model, also through functions and classes of this file."""
    name = module.callee(call)
    if name is not None:
        last = name.rpartition(".")[2]
        return name in _MODELS or (name.startswith("keras.applications.") and last[:1].isupper())
    owner = module.local_class(call.func)
    if owner is not None:
        return is_model_class(module, owner)
    function = module.local_function(call.func)
    if function is None or isinstance(function, ast.AsyncFunctionDef) or depth <= 1:
        return False
    return any(is_model(module, each, depth - 1) for each in module.returned(function))


def is_model_class(module: Module, owner: ast.ClassDef) -> bool:
    """Whether a class of this file derives from `keras.Model`."""
    return _derives(module, owner, ("keras.Model", "keras.Sequential"))


def is_layer_class(module: Module, owner: ast.ClassDef) -> bool:
    """Whether a class of this file derives from `keras.layers.Layer` or `keras.Model`."""
    return _derives(module, owner, (*_LAYER_BASES, "keras.Model", "keras.Sequential"))


def _derives(module: Module, owner: ast.ClassDef, names: tuple[str, ...], depth: int = _DEEPEST) -> bool:
    for base in owner.bases:
        if module.dotted(base) in names:
            return True
        above = module.local_class(base)
        if above is not None and depth and above is not owner and _derives(module, above, names, depth - 1):
            return True
    return False


@once
def fits(module: Module) -> Iterator[ast.Call]:
    """Every call of a Keras model's `fit`; that of a scaler or a tokenizer is none."""
    for call in module.calls_to("fit"):
        if isinstance(call.func, ast.Attribute):
            words = {each.arg for each in call.keywords}
            if words & _FIT_WORDS or is_model(module, call.func.value):
                yield call


def fit_data(call: ast.Call) -> ast.expr | None:
    """What `fit` trains on."""
    return argument(call, "x", 0)


def graph_decorator(module: Module, function: FunctionNode) -> ast.expr | None:
    """The `@tf.function` of a function, with or without arguments."""
    if isinstance(function, ast.Lambda):
        return None
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.dotted(target) == "tensorflow.function":
            return decorator
    return None


def becomes_graph(module: Module, node: ast.AST, depth: int = _DEEPEST) -> bool:
    """Whether a node is in a function that is traced: `@tf.function`, a method that Keras traces, or one they call."""
    for function in module.functions(node):
        if graph_decorator(module, function) is not None or wrapped_in_function(module, function):
            return True
        if not isinstance(function, ast.FunctionDef):
            continue
        owner = module.parent(function)
        if function.name in _GRAPH_METHODS and isinstance(owner, ast.ClassDef) and is_layer_class(module, owner):
            return True
        if depth and any(becomes_graph(module, call, depth - 1) for call in _calls_of(module, function)):
            return True
    return False


def _calls_of(module: Module, function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Where a function of this file is called, or given to `strategy.run`, from other functions."""
    for call in module.calls_to(function.name):
        if module.local_function(call.func) is function and not module.inside(call, function):
            yield call
    for call in module.calls_to("run", "map", "while_loop"):
        if call.args and module.local_function(call.args[0]) is function:
            yield call


def wrapped_in_function(module: Module, function: FunctionNode) -> bool:
    """Whether `tf.function(step)` is written somewhere for this function."""
    return function in _wrapped(module)


@once
def _wrapped(module: Module) -> Iterator[FunctionNode]:
    for call in module.calls_to("function"):
        function = module.local_function(call.args[0]) if call.args else None
        if function is not None and module.callee(call) == "tensorflow.function":
            yield function


def traced(module: Module, called: ast.expr) -> tuple[FunctionNode, ast.expr] | None:
    """The function of this file behind a name that is a `tf.function`, and where it was made one."""
    if isinstance(called, ast.Name):
        found = module.bindings(called)
        if len(found) == 1 and found[0].kind == "assign" and module.callee(found[0].value) == "tensorflow.function":
            function = module.local_function(found[0].value)
            return None if function is None or found[0].value is None else (function, found[0].value)
    function = module.local_function(called)
    decorator = None if function is None else graph_decorator(module, function)
    return None if function is None or decorator is None else (function, decorator)


def tapes(module: Module, node: ast.AST) -> list[ast.With]:
    """The `with tf.GradientTape()` blocks inside a node."""
    return [each for each in _tapes(module) if module.inside(each, node)]


@once
def _tapes(module: Module) -> Iterator[ast.With]:
    for each in module.outline.withs:
        if any(is_tape(module, item.context_expr) for item in each.items):
            yield each


def is_tape(module: Module, node: ast.AST) -> bool:
    """Whether an expression makes a gradient tape."""
    return module.callee(node) == "tensorflow.GradientTape"


def is_training_step(module: Module, function: FunctionNode) -> bool:
    """Whether a function computes gradients and applies them."""
    applying = module.calls_to("apply_gradients", "apply", "minimize")
    return any(module.inside(each, function) for each in applying) and bool(tapes(module, function))


def parameters(function: FunctionNode) -> list[str]:
    """The names of a function's positional parameters, without `self`."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def in_function(node: ast.AST, module: Module) -> bool:
    """Whether a node is in any function at all."""
    return any(isinstance(each, FUNCTIONS) for each in module.ancestors(node))
