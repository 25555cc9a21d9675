"""MF034."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument, is_true
from memfit.lint.keras_code import is_model
from memfit.lint.module import Module
from memfit.lint.outputs import last_layer, squashing
from memfit.lint.rule import Problem, Rule


class SoftmaxBeforeLogitsLoss(Rule):
    """The last layer is a softmax, and the loss is told to expect logits.

    ## What it does
    Looks for models that end in `softmax` or `sigmoid` and are compiled with a cross-entropy that says
    `from_logits=True`.

    ## Why is this bad
    The loss applies a softmax of its own, which needs one more tensor of the output's size for the backward pass.
    Where Keras sees the softmax it takes its input instead and warns; where it does not, as in a custom training
    loop or after a layer that changes the type, the softmax is applied twice and training is slow. Under mixed
    precision the first one is computed in float16, where small probabilities become 0 and their logarithm infinite.

    ## Example
    ```python
    model = keras.Sequential([..., keras.layers.Dense(10, activation="softmax")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ```

    ## Use instead
    ```python
    model = keras.Sequential([..., keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ```

    ## Fix safety
    There is no fix: what reads the predictions may need probabilities.
    """

    code = "MF034"
    name = "softmax-before-logits-loss"
    why = "The loss applies a softmax of its own; in float16 the first one rounds small probabilities to 0."
    instead = "keras.layers.Dense(10) without activation, or the loss without from_logits=True"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the loss."""
        for call in module.calls_to("compile"):
            if not isinstance(call.func, ast.Attribute):
                continue
            loss = argument(call, "loss", 1)
            made = None if loss is None else module.settled(loss)
            name = module.callee(made) or ""
            if (
                not isinstance(made, ast.Call)
                or not name.startswith("keras.losses.")
                or not name.endswith("Crossentropy")
            ):
                continue
            if not is_true(argument(made, "from_logits")) or not is_model(module, call.func.value):
                continue
            squashed = squashing(module, last_layer(module, call.func.value))
            if squashed is not None:
                yield Problem(call, f"the model ends in {squashed}, and its loss says from_logits=True")
