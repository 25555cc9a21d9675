"""MF030."""

import ast
from collections.abc import Iterator

from memfit.lint.keras_code import is_layer_class
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule

_WEIGHTS = frozenset(
    "BatchNormalization Bidirectional Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM2D "
    "Convolution2D Dense DepthwiseConv2D EinsumDense Embedding GRU GroupNormalization LSTM LayerNormalization "
    "MultiHeadAttention PReLU SeparableConv1D SeparableConv2D SimpleRNN".split()
)


class LayerCreatedInCall(Rule):
    """A layer with weights is created in the `call` of another.

    ## What it does
    Looks for layers such as `Dense` and `Conv2D` that are made inside of a layer's or model's `call`. Layers
    without weights (`Add`, `Flatten`, `Concatenate`) are left alone, and so are layers that are made once, below an
    `if`.

    ## Why is this bad
    Every call makes new weights at random: they are not part of the model, are not trained and not saved. Measured
    with TensorFlow's GPU allocator on a CPU: 20 eager calls that made a dense layer of 1,024 x 1,024 below a tape
    left 80 MiB on the device while their results were kept, with one layer nothing. In a graph it is an error.

    ## Example
    ```python
    class Block(keras.layers.Layer):
        def call(self, x):
            return keras.layers.Dense(64)(x)
    ```

    ## Use instead
    ```python
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(64)

        def call(self, x):
            return self.dense(x)
    ```

    ## Fix safety
    There is no fix: the layer needs a name and a place in `__init__`.
    """

    code = "MF030"
    name = "layer-created-in-call"
    why = "Every call makes new weights: they are not trained and not saved, and each set takes memory."
    instead = "self.dense = keras.layers.Dense(64) in __init__, self.dense(x) in call"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the layer."""
        for call in module.calls_to(*_WEIGHTS):
            name = module.callee(call)
            if name is None or not name.startswith("keras.layers.") or name.rpartition(".")[2] not in _WEIGHTS:
                continue
            function = module.function(call)
            if not isinstance(function, ast.FunctionDef) or function.name != "call":
                continue
            owner = module.parent(function)
            if not isinstance(owner, ast.ClassDef) or not is_layer_class(module, owner):
                continue
            if not any(isinstance(each, ast.If) and module.inside(each, function) for each in module.ancestors(call)):
                yield Problem(call, f"`{owner.name}.call` creates a {name.rpartition('.')[2]} every time it runs")
