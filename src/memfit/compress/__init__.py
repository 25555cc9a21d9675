"""Pruning and quantization: what saves memory where a model is used, not where it is trained."""

from memfit.compress.aware import quantization_aware
from memfit.compress.aware import stripped as strip
from memfit.compress.export import export
from memfit.compress.filters import prune_filters
from memfit.compress.prune import prune
from memfit.compress.quantize import Quantized, quantize
from memfit.compress.sparsity import SparsityReport
from memfit.compress.sparsity import sparsity_of as sparsity

__all__ = [
    "Quantized",
    "SparsityReport",
    "export",
    "prune",
    "prune_filters",
    "quantization_aware",
    "quantize",
    "sparsity",
    "strip",
]
