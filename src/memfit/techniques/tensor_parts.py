"""Structures of tensors as flat lists of dense ones: dictionaries, sparse and ragged tensors taken apart."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from memfit.framework import tensorflow


class TensorParts:
    """A structure's dense tensors, and the way back.

    Attributes:
        tensors: All dense tensors, with the parts of sparse and ragged ones. Other values stay in the structure.
        masks: For each tensor Keras's mask, or `None`.
    """

    def __init__(self, structure: Any) -> None:
        tf = tensorflow()
        self._structure = structure
        self._leaves = tf.nest.flatten(structure)
        self._counts = []
        self.tensors: list[Any] = []
        for leaf in self._leaves:
            parts = tf.nest.flatten(leaf, expand_composites=True) if _composite(leaf) else [leaf]
            tensors = parts if all(isinstance(part, tf.Tensor) for part in parts) else []
            self._counts.append(len(tensors))
            self.tensors += tensors
        self.masks = [mask_of(each) for each in self.tensors]

    def rebuilt(self, tensors: Sequence[Any], masks: Sequence[Any]) -> Any:
        """The structure with other tensors in it, and other masks where there were masks."""
        tf = tensorflow()
        attached = iter(masks)
        for tensor, mask in zip(tensors, self.masks, strict=True):
            if mask is not None:
                set_mask(tensor, next(attached))
        leaves, position = [], 0
        for leaf, count in zip(self._leaves, self._counts, strict=True):
            parts = list(tensors[position : position + count])
            position += count
            if _composite(leaf) and count:
                leaves.append(tf.nest.pack_sequence_as(leaf, parts, expand_composites=True))
            else:
                leaves.append(parts[0] if count else leaf)
        return tf.nest.pack_sequence_as(self._structure, leaves)


def mask_of(tensor: Any) -> Any:
    """Keras's mask of a tensor, or `None`."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Any) -> None:
    """Give a tensor a mask."""
    tensor._keras_mask = mask


def _composite(value: Any) -> bool:
    # A variable is one as well; it is not an activation.
    kind = import_module("tensorflow.python.framework.composite_tensor").CompositeTensor
    return isinstance(value, kind) and not isinstance(value, tensorflow().Variable)
