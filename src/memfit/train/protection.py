"""The state of before a step, kept so that a step that ran out of memory can be undone.

TensorFlow writes to variables while a step still computes, so a step that fails leaves some of them changed. Under XLA
it is worse: a failed step has given the buffers of its variables away, and the process aborts when they are touched.
Values that somebody holds are neither overwritten nor given away.
"""

from typing import Any

from memfit.compat.step_function import StepFunction, stateful_random_operations
from memfit.framework import tensorflow
from memfit.hardware.device_reader import DeviceReader
from memfit.hardware.host import host_memory
from memfit.units import MIB

# A processor runs operations in one order now and in another the next time, and peaks differ: above this share of the
# limit every step may run out.
_NEAR = 0.7
# Memory in use between two steps varies by so much: logs, the batch's own tensors.
_SLACK = MIB
_HOST_SHARE = 0.5


class Protection:
    """Keeps the state of before each step, or of before the steps that may run out of memory.

    A step with a larger batch than any before may run out, and one that finds more memory in use than any before. On
    a processor, so may every step whose predecessor came near the limit.

    Args:
        function: The step; traced.
        jit: Whether XLA compiles it.
        always: Whether to keep the state of before every step.
        on_device: Whether to keep it in device memory, which takes a second copy of what the step changes while it does
            so, and hardly any time. Under XLA it is always kept there.
    """

    def __init__(self, function: StepFunction, *, jit: bool, always: bool, on_device: bool) -> None:
        self.function, self._always, self._on_device = function, always, on_device or jit
        self.repeatable = not stateful_random_operations(function)
        """Whether a step can be done again: numbers that it has drawn with `tf.random` cannot be drawn again."""
        self._held: Any = None
        self._copied: list[Any] | None = None
        self._largest = self._most_in_use = -1
        self._device = DeviceReader()
        self._limit = self._device.limit() if self._device.name.startswith("CPU") else None
        self._last_peak = 0

    def may_run_out(self, spec: Any) -> bool:
        """Whether the next step is to be protected; false says that its batch need not be looked at.

        Args:
            spec: What batches look like, where that is known.
        """
        if self._always or self._largest < 0 or spec is None or _has_unknown_sizes(spec):
            return True
        return self._is_near_limit or self._in_use() > self._most_in_use + _SLACK

    def begin(self, data: Any) -> None:
        """A step on this batch comes next."""
        if self._always:
            self._keep()
            return
        size = sum(_size(each) for each in tensorflow().nest.flatten(data) if each is not None)
        in_use = self._in_use()
        if size <= self._largest and in_use <= self._most_in_use + _SLACK and not self._is_near_limit:
            return
        self._largest, self._most_in_use = max(size, self._largest), max(in_use, self._most_in_use)
        self._keep()

    def _keep(self) -> None:
        if self._on_device:
            self._held = self.function.hold()
        elif self._fits_into_host_memory():
            self._copied = self.function.read()

    def end(self) -> None:
        """The step is done."""
        self._held = self._copied = None
        if self._limit is not None:
            self._last_peak = self._device.read()[1] or 0

    def undo(self) -> bool:
        """Put the state of before the step back; false where it was not kept."""
        if self._held is not None:
            self.function.write(self.function.values(self._held))
        elif self._copied is not None:
            self.function.write(self._copied)
        else:
            return False
        self.end()
        return True

    @property
    def _is_near_limit(self) -> bool:
        return self._limit is not None and self._last_peak > _NEAR * self._limit

    def _in_use(self) -> int:
        return self._device.read()[0] or 0

    def _fits_into_host_memory(self) -> bool:
        available = host_memory().available
        size = sum(each.dtype.size * max(1, _product(each.shape)) for each in self.function.state)
        return available is None or size < _HOST_SHARE * available


def _has_unknown_sizes(spec: Any) -> bool:
    """Whether batches may differ in more than the number of their samples, as those of texts do."""
    leaves = [each for each in tensorflow().nest.flatten(spec) if each is not None]
    return any(
        not isinstance(each, tensorflow().TensorSpec) or each.shape.rank is None or None in each.shape[1:]
        for each in leaves
    )


def _size(tensor: Any) -> int:
    return _product(tensor.shape) if hasattr(tensor, "shape") else 0


def _product(shape: Any) -> int:
    size = 1
    for each in shape:
        size *= int(each or 1)
    return size
