"""MF025."""

from collections.abc import Iterator

from memfit.lint.accumulation import accumulations, is_reset
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class AccumulatorNeverReset(Rule):
    """Accumulated gradients are applied and never set back to zero.

    ## What it does
    Looks for lists of gradients that are added to, given to `apply_gradients`, and that nothing in the same
    function or class assigns anew.

    ## Why is this bad
    Every update holds all gradients since the first step: training runs away, and the memory for the accumulators,
    one more copy of all weights, buys nothing.

    ## Example
    ```python
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x)) / 4
        gradients = tape.gradient(loss, model.trainable_variables)
        for accumulated, gradient in zip(accumulators, gradients):
            accumulated.assign_add(gradient)
        optimizer.apply_gradients(zip(accumulators, model.trainable_variables))
    ```

    ## Use instead
    ```python
    optimizer.apply_gradients(zip(accumulators, model.trainable_variables))
    for accumulated in accumulators:
        accumulated.assign(tf.zeros_like(accumulated))
    ```
    or `keras.optimizers.Adam(gradient_accumulation_steps=4)`.

    ## Fix safety
    There is no fix: where the loop belongs depends on when gradients are applied.
    """

    code = "MF025"
    name = "accumulator-never-reset"
    why = "Every update holds all gradients since the first step, in accumulators as large as the weights."
    instead = "for each in accumulators: each.assign(tf.zeros_like(each))   # after apply_gradients"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find where they are applied."""
        for found in accumulations(module):
            if not is_reset(module, found):
                yield Problem(found.applied, f"`{found.key}` is added to and applied, and never set back")
