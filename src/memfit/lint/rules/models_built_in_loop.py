"""MF019."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import method_name
from memfit.lint.keras_code import fits, makes_model
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule
from memfit.lint.scopes import LoopNode

_CLEARING = ("clear_session", "reset_default_graph", "free_memory")
_FEW = 3
_PROCESSES = ("Process", "Pool", "ProcessPoolExecutor", "submit", "spawn")


class ModelsBuiltInLoop(Rule):
    """A model is built and trained in every turn of a loop, and nothing clears the last one away.

    ## What it does
    Looks for loops, over folds or settings, in which a Keras model is made, given to a name and trained with `fit`,
    and in which neither `clear_session` is called nor another process started. Loops of up to three turns are left
    alone, and so are models that are put into a list: an ensemble is meant to be there.

    ## Why is this bad
    Keras objects refer to each other, so that a model lives on until the garbage collector comes by, its graphs and
    weights with it. Measured with TensorFlow's GPU allocator on a CPU, TensorFlow 2.21 and Keras 3.15: 20 models of
    6 MiB, trained for one step with Adam, left 361 MiB behind. Clearing frees models that were built or used for
    predictions; what was trained in graph mode stays even then (362 MiB; tensorflow#64170, keras#17458). Where that
    is too much, train each model in a process of its own.

    ## Example
    ```python
    def build_model():
        return keras.Sequential([keras.layers.Dense(10)])

    for train, test in folds.split(x):
        model = build_model()
        model.compile("adam", "mse")
        model.fit(x[train], y[train])
    ```

    ## Use instead
    ```python
    def train_fold(fold): ...  # builds, trains, and returns numbers

    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        scores = pool.map(train_fold, range(5), chunksize=1)
    ```
    or, at the end of each turn, `del model; keras.backend.clear_session(); gc.collect()`.

    ## Fix safety
    There is no fix: what is kept of a model is yours to say.
    """

    code = "MF019"
    name = "models-built-in-loop"
    why = "The weights, optimizer state and graphs of every model stay in memory until the process ends."
    instead = (
        "train each model in a process of its own; at least: del model; keras.backend.clear_session(); gc.collect()"
    )

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the call that builds the model."""
        trained = [call for call in fits(module) if any(True for _ in module.loops(call))]
        for call in module.calls if trained else ():
            loop = next(module.loops(call), None)
            if loop is None or not makes_model(module, call) or _is_short(module, loop):
                continue
            name = _name(module, call)
            if name is None or _is_cleared(module, loop):
                continue
            if _is_kept(module, loop, name):
                continue
            if any(_trains(each, name) and module.inside(each, loop) for each in trained):
                yield Problem(call, f"`{name}` is built and trained in every turn of the loop, and never cleared away")


def _name(module: Module, call: ast.Call) -> str | None:
    above = module.parent(call)
    if isinstance(above, ast.Assign) and len(above.targets) == 1 and isinstance(above.targets[0], ast.Name):
        return above.targets[0].id
    return None


def _is_kept(module: Module, loop: LoopNode, name: str) -> bool:
    """Whether the model itself goes into a list or a table, or is returned."""
    for each in ast.walk(loop):
        if not isinstance(each, ast.Name) or each.id != name or not isinstance(each.ctx, ast.Load):
            continue
        above = module.parent(each)
        if isinstance(above, ast.Return | ast.Yield | ast.Dict | ast.List | ast.Tuple):
            return True
        if isinstance(above, ast.Assign) and not all(isinstance(target, ast.Name) for target in above.targets):
            return True
        if isinstance(above, ast.Call) and method_name(above) in ("append", "extend", "add") and each in above.args:
            return True
    return False


def _trains(fit: ast.Call, name: str) -> bool:
    return isinstance(fit.func, ast.Attribute) and isinstance(fit.func.value, ast.Name) and fit.func.value.id == name


def _is_short(module: Module, loop: LoopNode) -> bool:
    """A loop of a few turns, or one that waits for something."""
    if isinstance(loop, ast.While):
        return True
    given: ast.expr | None = loop.iter
    while isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and len(given.args) == 1:
        number = module.number(given.args[0])
        if given.func.id == "range" and number is not None:
            return number <= _FEW
        given = given.args[0]  # enumerate(rates), range(len(rates))
    listed = None if given is None else module.settled(given)
    return isinstance(listed, ast.List | ast.Tuple) and len(listed.elts) <= _FEW


def _is_cleared(module: Module, loop: LoopNode) -> bool:
    for call in module.calls:
        if module.inside(call, loop):
            name = method_name(call) or (call.func.id if isinstance(call.func, ast.Name) else "")
            if name in _CLEARING or name in _PROCESSES:
                return True
            function = module.local_function(call.func)
            if function is not None and any(each.endswith(_CLEARING) for each in module.called_in(function)):
                return True
    return False
