"""How many of a model's weights are zero."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from memfit.compress.kernels import kernels_of
from memfit.compress.masks import fits_two_of_four


@dataclass(frozen=True)
class LayerSparsity:
    """The kernel of one layer."""

    layer: str
    shape: tuple[int, ...]
    weights: int
    zeros: int
    is_two_of_four: bool
    """Whether at least two of every four weights are zero."""

    @property
    def sparsity(self) -> float:
        """The share of zeros."""
        return self.zeros / max(1, self.weights)


@dataclass(frozen=True)
class SparsityReport:
    """The kernels of a model."""

    model_name: str
    layers: tuple[LayerSparsity, ...]

    @property
    def sparsity(self) -> float:
        """The share of zeros among all of them."""
        return sum(each.zeros for each in self.layers) / max(1, sum(each.weights for each in self.layers))

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "model": self.model_name,
            "sparsity": self.sparsity,
            "layers": [
                {
                    "layer": each.layer,
                    "shape": list(each.shape),
                    "weights": each.weights,
                    "zeros": each.zeros,
                    "sparsity": each.sparsity,
                    "is_two_of_four": each.is_two_of_four,
                }
                for each in self.layers
            ],
        }

    def __str__(self) -> str:
        from memfit.report.compress_sparsity import sparsity_text

        return sparsity_text(self)

    def _repr_html_(self) -> str:
        from memfit.report.compress_sparsity import sparsity_html

        return sparsity_html(self)


def sparsity_of(model: Any) -> SparsityReport:
    """How sparse the convolutions and dense layers of a model are."""
    layers = []
    for name, kernel in kernels_of(model).items():
        values = kernel.numpy()
        zeros = int((values == 0).sum())
        layers.append(LayerSparsity(name, values.shape, values.size, zeros, _is_two_of_four(values)))
    return SparsityReport(model.name, tuple(layers))


def _is_two_of_four(kernel: Any) -> bool:
    if not fits_two_of_four(kernel.shape):
        return False
    *size, inputs, outputs = kernel.shape
    zeros = (kernel == 0).reshape(*size, inputs // 4, 4, outputs).sum(axis=-2)
    return bool(np.all(zeros >= 2))
