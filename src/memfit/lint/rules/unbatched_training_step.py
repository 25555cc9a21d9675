"""MF005."""

import ast
from collections.abc import Iterator

from memfit.lint.images import ImageArray, holds_images, image_arrays
from memfit.lint.keras_code import is_model, is_tape, is_training_step, tapes
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule

_DEEPEST = 6


class UnbatchedTrainingStep(Rule):
    """A training step is called on the whole data set.

    ## What it does
    Looks, inside a loop, for calls of a function with a `GradientTape` that get whole arrays: those of
    `keras.datasets`, or arrays stacked from image files. The same for a model called directly below the tape.

    ## Why is this bad
    The activations of a step grow with the batch, and here the batch is everything. Measured on a CPU: a step of
    three convolutions took 869 MiB for 2,000 images of 32 x 32 at once, and 16 MiB for a batch of 32.

    ## Example
    ```python
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    (x_train, y_train), _ = keras.datasets.cifar10.load_data()
    for epoch in range(10):
        train_step(x_train, y_train)
    ```

    ## Use instead
    ```python
    data = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(10_000).batch(32)
    for epoch in range(10):
        for x, y in data:
            train_step(x, y)
    ```

    ## Fix safety
    There is no fix: the training changes with the size of a batch.
    """

    code = "MF005"
    name = "unbatched-training-step"
    why = "Activations grow with the batch, and here the batch is the data set."
    instead = "for x, y in tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(32): train_step(x, y)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the call."""
        arrays = image_arrays(module)
        for call in module.calls if tapes(module, module.tree) else ():
            if not call.args or not any(True for _ in module.loops(call)):
                continue
            function = module.local_function(call.func)
            trains = function is not None and is_training_step(module, function)
            if not trains and not (_below_tape(module, call) and is_model(module, call.func)):
                continue
            for each in call.args:
                if _is_whole(module, each, arrays):
                    yield Problem(call, f"a step on all of `{module.source.segment(each)}` at once")
                    break


def _below_tape(module: Module, call: ast.Call) -> bool:
    return any(
        isinstance(each, ast.With) and any(is_tape(module, item.context_expr) for item in each.items)
        for each in module.ancestors(call)
    )


def _is_whole(module: Module, node: ast.expr, arrays: tuple[ImageArray, ...], depth: int = _DEEPEST) -> bool:
    if not isinstance(node, ast.Name):
        return False
    return holds_images(module, node, arrays) or _is_from_datasets(module, node, depth)


def _is_from_datasets(module: Module, node: ast.expr | None, depth: int) -> bool:
    """Whether an array is that of `keras.datasets.*.load_data()`, scaled or reshaped."""
    if node is None or depth == 0:
        return False
    if isinstance(node, ast.Name):
        binding = module.binding(node)
        if binding is None or binding.kind not in ("assign", "unpack"):
            return False
        if binding.kind == "unpack":
            loaded = module.callee(binding.value) or ""
            return loaded.startswith("keras.datasets.") and loaded.endswith(".load_data")
        return _is_from_datasets(module, binding.value, depth - 1)
    if isinstance(node, ast.BinOp):
        return _is_from_datasets(module, node.left, depth - 1)
    if isinstance(node, ast.Call):
        name = module.callee(node)
        if name is None and isinstance(node.func, ast.Attribute) and node.func.attr in ("astype", "reshape"):
            return _is_from_datasets(module, node.func.value, depth - 1)
        plain = ("tensorflow.constant", "tensorflow.convert_to_tensor", "tensorflow.cast", "numpy.expand_dims")
        return name in plain and bool(node.args) and _is_from_datasets(module, node.args[0], depth - 1)
    return False
