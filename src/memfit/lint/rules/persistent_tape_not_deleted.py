"""MF027."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument, is_true
from memfit.lint.keras_code import becomes_graph, in_function, is_model, is_tape
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


def persistent_tapes(module: Module) -> Iterator[tuple[ast.With, ast.Call, str]]:
    """Every `with tf.GradientTape(persistent=True) as tape`, with the call and the name."""
    for block in module.outline.withs:
        for item in block.items:
            made, name = item.context_expr, item.optional_vars
            if not isinstance(made, ast.Call) or not isinstance(name, ast.Name) or not is_tape(module, made):
                continue
            if is_true(argument(made, "persistent", 0)):
                yield block, made, name.id


class PersistentTapeNotDeleted(Rule):
    """A persistent tape lives on after its gradients are there.

    ## What it does
    Looks for `GradientTape(persistent=True)` without `del tape`, in a loop, or at the top of a script where a Keras
    model or layer is called below it. In a function that ends after its gradients the tape goes with it, and in a
    graph it holds nothing: both are left alone.

    ## Why is this bad
    A persistent tape keeps every activation until it is gone. Measured with TensorFlow's GPU allocator on a CPU:
    eight layers with 2 MiB of activations each held 16 MiB after their gradients were computed, and nothing when
    the tape was deleted; that memory is missing in whatever comes next: the update, the validation, the next model.

    ## Example
    ```python
    for x, y in data:
        with tf.GradientTape(persistent=True) as tape:
            ...
        first = tape.gradient(loss, generator.trainable_variables)
        second = tape.gradient(loss, discriminator.trainable_variables)
    ```

    ## Use instead
    ```python
    for x, y in data:
        with tf.GradientTape(persistent=True) as tape:
            ...
        first = tape.gradient(loss, generator.trainable_variables)
        second = tape.gradient(loss, discriminator.trainable_variables)
        del tape
    ```

    ## Fix safety
    There is no fix: the tape may be used further on.
    """

    code = "MF027"
    name = "persistent-tape-not-deleted"
    why = "The tape keeps every activation until it is deleted, or until the next one takes its name."
    instead = "del tape   # after the last gradient"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the tape."""
        for block, made, name in persistent_tapes(module):
            if becomes_graph(module, block) or _is_deleted(module, block, name):
                continue
            looped = any(True for _ in module.loops(block))
            if looped or (not in_function(block, module) and _has_weights(module, block)):
                yield Problem(made, f"the persistent tape `{name}` is never deleted")


def _has_weights(module: Module, block: ast.With) -> bool:
    """Whether a Keras layer or model is called below the tape: numbers to try derivatives on take no memory."""
    for call in ast.walk(block):
        if isinstance(call, ast.Call) and module.dotted(call.func) is None:
            made = module.settled(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else call.func
            if (module.callee(made) or "").startswith("keras.") or is_model(module, call.func):
                return True
    return False


def _is_deleted(module: Module, block: ast.With, name: str) -> bool:
    return any(
        isinstance(target, ast.Name) and target.id == name and module.function(each) is module.function(block)
        for each in module.outline.deleted
        for target in each.targets
    )
