"""MF035."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument
from memfit.lint.keras_code import is_model
from memfit.lint.module import Module
from memfit.lint.outputs import last_layer, squashing
from memfit.lint.rule import Problem, Rule

_POLICIES = (
    "keras.mixed_precision.set_global_policy", "keras.mixed_precision.set_policy", "keras.config.set_dtype_policy",
    "keras.mixed_precision.set_dtype_policy", "keras.mixed_precision.experimental.set_policy",
)  # fmt: skip


class Float16Softmax(Rule):
    """Under mixed precision the last softmax is computed in float16.

    ## What it does
    Looks for models that are compiled in a file that sets the policy `mixed_float16`, and whose last layer is a
    `softmax` or `sigmoid` without `dtype="float32"`.

    ## Why is this bad
    float16 has nothing below 6e-8: probabilities become 0, their logarithm infinite, and the loss `nan`. People
    then give mixed precision up, and the memory it saves. The output of one layer in float32 costs next to nothing.

    ## Example
    ```python
    keras.mixed_precision.set_global_policy("mixed_float16")
    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(10, activation="softmax")(inputs)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "categorical_crossentropy")
    ```

    ## Use instead
    ```python
    keras.mixed_precision.set_global_policy("mixed_float16")
    x = keras.layers.Dense(10)(x)
    outputs = keras.layers.Activation("softmax", dtype="float32")(x)
    ```

    ## Fix safety
    There is no fix: saved weights of the layer have to stay in their place.
    """

    code = "MF035"
    name = "float16-softmax"
    why = "In float16 small probabilities become 0 and their logarithm infinite: the loss is nan."
    instead = 'keras.layers.Activation("softmax", dtype="float32") as the last layer'

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the layer."""
        if "mixed_float16" not in module.source.text:
            return
        policy = next((each for each in module.calls if _sets_policy(module, each)), None)
        for call in module.calls_to("compile"):
            if policy is None or not isinstance(call.func, ast.Attribute):
                continue
            if is_model(module, call.func.value):
                layer = last_layer(module, call.func.value)
                squashed = squashing(module, layer)
                if (
                    layer is not None
                    and squashed is not None
                    and argument(layer, "dtype") is None
                    and module.before(policy, layer)
                ):
                    yield Problem(layer, f"the last {squashed} is computed in float16")


def _sets_policy(module: Module, call: ast.Call) -> bool:
    if module.callee(call) not in _POLICIES or not call.args:
        return False
    given = module.settled(call.args[0])
    if isinstance(given, ast.Call) and given.args:
        given = given.args[0]
    return isinstance(given, ast.Constant) and given.value == "mixed_float16" and module.function(call) is None
