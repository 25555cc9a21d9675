"""The outputs of slices, put together to those of the whole batch with Keras's masks."""

from typing import Any

from memfit.errors import InputError
from memfit.framework import keras


class SlicedOutputs:
    """The outputs of one traced model.

    Args:
        model: The model, for messages.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def of_slice(self, predictions: Any) -> dict[str, list[Any]]:
        """A slice's outputs and masks, as `slices.Work` returns its rows.

        Raises:
            InputError: If an output is not a tensor with samples along its first dimension.
        """
        self._structure = predictions
        flat = keras().tree.flatten(predictions)
        for each in flat:
            shape = getattr(each, "shape", None)
            if shape is None or not shape.rank:
                raise InputError(
                    f"an output of {self._model.name!r} has the shape {shape}; micro_batch puts outputs together along "
                    "their samples. Return tensors with samples along the first dimension, or plan without micro_batch."
                )
        masks = [getattr(each, "_keras_mask", None) for each in flat]
        self._masked = [each is not None for each in masks]
        return {"outputs": flat, "masks": [each for each in masks if each is not None]}

    def of_batch(self, rows: dict[str, list[Any]]) -> Any:
        """The outputs of the whole batch."""
        masks = iter(rows["masks"])
        for tensor, masked in zip(rows["outputs"], self._masked, strict=True):
            if masked:
                tensor._keras_mask = next(masks)
        return keras().tree.pack_sequence_as(self._structure, rows["outputs"])
