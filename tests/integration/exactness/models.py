"""Building blocks of the cases: small models, their data, and a registry of cases."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers
from tests.integration.exactness.harness import TECHNIQUES, Case

SAMPLES, BATCH = 10, 4  # batches of 4, 4 and 2; slices of 3 leave a remainder of every batch
FEATURES, CLASSES = (6,), 3
LOGITS = "sparse_categorical_crossentropy_from_logits"


class Cases(list):
    """The cases of one group.

    Args:
        group: The group's name.
        techniques: The techniques of a case that names none, separated by spaces.
    """

    def __init__(self, group: str, techniques: str) -> None:
        super().__init__()
        self.group, self.techniques = group, techniques

    def add(
        self,
        name: str,
        build: Callable[[], tuple[Any, ...]],
        techniques: str | None = None,
        *,
        equal: str = "",
        refused: str = "",
        quick: str = "",
        dtype: str = "float64",
    ) -> None:
        """Register a case; `equal` and `refused` name techniques whose outcome is certain."""
        names = tuple((techniques or self.techniques).split())
        expected = dict.fromkeys(equal.split(), "equal") | dict.fromkeys(refused.split(), "refused")
        assert {*names} <= {*TECHNIQUES}, name
        assert {*expected, *quick.split()} <= {*names}, name
        self.append(Case(name, self.group, build, names, expected, tuple(quick.split()), dtype))

    def case(self, techniques: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register the function below as a case of its name."""

        def register(build: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
            self.add(build.__name__, build, techniques, **settings)
            return build

        return register


def generator() -> np.random.Generator:
    """The same data in every run."""
    return np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    """Samples of a shape."""
    return generator().normal(size=(SAMPLES, *shape)).astype(keras.config.floatx())


def labels(*shape: int, classes: int = CLASSES) -> np.ndarray:
    """Class numbers."""
    return np.random.default_rng(8).integers(0, classes, (SAMPLES, *shape))


def tokens(length: int = 5, vocabulary: int = 9) -> np.ndarray:
    """Sequences of token numbers that end in padding."""
    drawn = generator().integers(1, vocabulary, (SAMPLES, length))
    lengths = np.random.default_rng(9).integers(2, length + 1, SAMPLES)
    return np.where(np.arange(length) < lengths[:, None], drawn, 0)


def weights() -> np.ndarray:
    """Sample weights."""
    return np.random.default_rng(10).random(SAMPLES).astype(keras.config.floatx()) + 0.1


def arrays(x: Any, y: Any = None, **settings: Any) -> dict[str, Any]:
    """Arguments of `fit` for arrays."""
    return {"x": x, "y": y, "batch_size": BATCH, "shuffle": False, **settings}


def compiled(model: Any, loss: Any = LOGITS, optimizer: Any = None, **settings: Any) -> Any:
    """Compile a model; by default as a classifier of class numbers."""
    if loss == LOGITS:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        settings.setdefault("metrics", ["accuracy"])
    optimizer = keras.optimizers.SGD(0.1) if optimizer is None else optimizer
    model.compile(optimizer, loss, **{"jit_compile": False, **settings})
    return model


def stack(shape: tuple[int, ...], *tested: Any, dtype: Any = None, outputs: int = CLASSES) -> Any:
    """A Functional model: the layers tested, and dense layers behind them."""
    inputs = tensor = keras.Input(shape, dtype=dtype)
    for layer in tested:
        tensor = layer(tensor)
    if len(tensor.shape) > 2:
        tensor = layers.Flatten()(tensor)
    tensor = layers.Dense(8, activation="tanh")(tensor)
    return keras.Model(inputs, layers.Dense(outputs)(tensor))


def mlp(outputs: int = CLASSES, activation: Any = None) -> Any:
    """Dense layers with dropout between them."""
    inputs = keras.Input(FEATURES)
    tensor = layers.Dense(8, activation="tanh")(inputs)
    tensor = layers.Dense(8, activation="tanh")(layers.Dropout(0.2)(tensor))
    return keras.Model(inputs, layers.Dense(outputs, activation=activation)(tensor))


def features(*tested: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """Layers on vectors, trained to classify."""
    model = stack(FEATURES, layers.Dense(6), *tested)
    return compiled(model, **settings), arrays(normal(*FEATURES), labels())


def images(*tested: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """Layers on images, trained to classify."""
    model = stack((6, 6, 2), layers.Conv2D(4, 3, use_bias=False), *tested)
    return compiled(model, **settings), arrays(normal(6, 6, 2), labels())


def sequences(*tested: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """Layers on sequences of vectors, trained to classify."""
    model = stack((5, 3), layers.Dense(4), *tested)
    return compiled(model, **settings), arrays(normal(5, 3), labels())
