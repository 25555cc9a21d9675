"""Blocks of cheap convolutions, as Keras layers. Importing this imports Keras."""

from memfit.layers.inverted_residual import InvertedResidual
from memfit.layers.separable_block import SeparableBlock

__all__ = ["InvertedResidual", "SeparableBlock"]
