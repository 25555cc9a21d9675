"""Every variable that belongs to a model."""

from typing import Any

from memfit.compat.optimizers import optimizers_of


def variables_of(model: Any) -> list[Any]:
    """The Keras variables that a model, its metrics and its optimizers hold, each once."""
    slots = (slot for optimizer in optimizers_of(model) for slot in optimizer.variables)
    held = (*model.variables, *model.metrics_variables, *slots)
    return list({id(each): each for each in held}.values())


def bytes_besides(model: Any, in_use: int) -> int:
    """What a device holds besides a model's variables: data, other models.

    Args:
        model: A compiled Keras model.
        in_use: The bytes in use on its device.
    """
    own = sum(int(each.value.dtype.size) * int(each.value.shape.num_elements()) for each in variables_of(model))
    return max(0, in_use - own)
