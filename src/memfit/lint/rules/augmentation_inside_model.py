"""MF016."""

import ast
import re
from collections.abc import Iterator

from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule

_HEAVY = ("AugMix", "AutoContrast", "CutMix", "Equalization", "MixUp", "RandAugment", "Solarization")
_WORDS = re.compile("|".join(("Random", *_HEAVY)))
_LEARNING = ("Conv", "Dense", "LSTM", "GRU", "Embedding", "DepthwiseConv", "SeparableConv", "MultiHeadAttention")


class AugmentationInsideModel(Rule):
    """Layers that augment images are part of the model that is trained.

    ## What it does
    Looks for layers such as `RandomFlip` and `RandomRotation` in a `Sequential` that also has layers with weights,
    and for such layers, or a `Sequential` of them, that are applied to a `keras.Input` or what was made of one.

    ## Why is this bad
    Inside the model they run on the GPU, on the whole batch, in every step, beside the activations. Measured with
    TensorFlow's GPU allocator on a CPU: flip, rotation and zoom of 32 images of 224 x 224 made the step of a small
    CNN take 89 MiB where it takes 62 MiB. On the CPU, in the pipeline, they cost no memory of the GPU and run while
    it works.

    ## Example
    ```python
    model = keras.Sequential([keras.layers.RandomFlip(), keras.layers.Conv2D(32, 3), keras.layers.Dense(10)])
    ```

    ## Use instead
    ```python
    augment = keras.Sequential([keras.layers.RandomFlip()])
    train = train.map(lambda x, y: (augment(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)
    model = keras.Sequential([keras.layers.Conv2D(32, 3), keras.layers.Dense(10)])
    ```

    ## Fix safety
    There is no fix: the pipeline has to be found and changed.
    """

    code = "MF016"
    name = "augmentation-inside-model"
    why = "Inside the model they run on the GPU, on the whole batch of every step, beside the activations."
    instead = "train.map(lambda x, y: (augment(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the layer, or where the layers are applied."""
        if not _WORDS.search(module.source.text):
            return
        for call in module.calls:
            if module.callee(call) == "keras.Sequential":
                yield from _in_sequential(module, call)
            elif call.args and _is_symbolic(module, call.args[0]):
                applied = augmenting(module, call.func)
                if applied is not None:
                    yield Problem(call, f"`{applied}` augments inside the model")


def _in_sequential(module: Module, call: ast.Call) -> Iterator[Problem]:
    layers = call.args[0] if call.args else None
    if not isinstance(layers, ast.List | ast.Tuple):
        return
    names = [_layer(module, each) for each in layers.elts]
    if not any(name is not None and name.startswith(_LEARNING) for name in names):
        return
    for each in layers.elts:
        applied = augmenting(module, each)
        if applied is not None:
            yield Problem(each, f"`{applied}` augments inside the model")
            return


def _layer(module: Module, node: ast.expr) -> str | None:
    name = module.callee(node)
    return name.rpartition(".")[2] if name is not None and name.startswith("keras.layers.") else None


def augmenting(module: Module, node: ast.expr) -> str | None:
    """The name of the layer, or of the `Sequential`, where an expression is one that augments."""
    made = module.settled(node)
    if not isinstance(made, ast.Call):
        return None
    layer = _layer(module, made)
    if layer is not None:
        return layer if layer.startswith("Random") or layer in _HEAVY else None
    if module.callee(made) == "keras.Sequential" and made.args and isinstance(made.args[0], ast.List | ast.Tuple):
        layers = [_layer(module, each) for each in made.args[0].elts]
        known = [each for each in layers if each is not None]
        if any(each.startswith("Random") or each in _HEAVY for each in known) and not any(
            each.startswith(_LEARNING) for each in known
        ):
            return module.source.segment(node) if isinstance(node, ast.Name | ast.Attribute) else "Sequential"
    return None


def _is_symbolic(module: Module, node: ast.expr, depth: int = 4) -> bool:
    """Whether an expression is a `keras.Input`, or made of one by other layers."""
    made = module.settled(node)
    if not isinstance(made, ast.Call) or depth == 0:
        return False
    if module.callee(made) == "keras.Input":
        return True
    return bool(made.args) and _is_symbolic(module, made.args[0], depth - 1)
