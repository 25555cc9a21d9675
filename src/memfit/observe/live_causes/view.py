"""What the causes look at: the living objects, the model, the device and its limit."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memfit.hardware import devices
from memfit.observe.living import Living

_BLOCK = 256


@dataclass(frozen=True)
class View:
    """One look at the process."""

    living: Living
    given: Any | None
    at: float

    @cached_property
    def models(self) -> list[Any]:
        """The models that are no part of another."""
        inner: set[int] = set()
        for model in self.living.models:
            inner |= {id(layer) for layer in model._flatten_layers(include_self=False)}
            # What a Sequential model computes with.
            inner.add(id(getattr(model, "_functional", None)))
        return [model for model in self.living.models if id(model) not in inner]

    @property
    def trained(self) -> list[Any]:
        """The model that was named, or all that are compiled."""
        if self.given is not None:
            return [self.given]
        return [model for model in self.models if getattr(model, "compiled", False)]

    @cached_property
    def device(self) -> devices.DeviceMemory | None:
        """The device whose memory is scarce: a GPU, or a CPU with a limit; `None` if there is none."""
        try:
            first = devices.memory()[0]
        except (ValueError, IndexError):  # an allocator that does not count
            return None
        return first if first.device.startswith("GPU") or first.limit else None


def tensor_bytes(tensor: Any) -> int:
    """What a tensor takes: the allocator gives whole blocks of 256 bytes."""
    return -(-int(tensor.dtype.size) * int(tensor.shape.num_elements() or 0) // _BLOCK) * _BLOCK


def on_device(tensor: Any, device: str) -> bool:
    """Whether a tensor lies on `GPU:0`."""
    return str(tensor.device).endswith(f"device:{device}")
