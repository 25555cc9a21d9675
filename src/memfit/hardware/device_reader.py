"""What the device that computes holds at this moment."""

from memfit.framework import tensorflow
from memfit.hardware import devices


class DeviceReader:
    """Reads the allocator of the device that computes: the first GPU, or without one the CPU."""

    def __init__(self) -> None:
        self._tf = tensorflow()
        self._statistics = self._tf.config.experimental
        there = self._tf.config.list_logical_devices("GPU") or self._tf.config.list_logical_devices("CPU")
        self.name: str = there[0].name.removeprefix("/device:")
        """Such as `"GPU:0"`."""
        self.counts = self._has_statistics()
        """Whether the allocator counts. On a CPU oneDNN's does, and with `TF_CPU_ALLOCATOR_USE_BFC=1` the one a GPU
        has; the plain one, which TensorFlow uses without either, does not."""

    @property
    def takes_all_at_once(self) -> bool:
        """Whether a GPU's allocator has taken all its memory as one region, and does not grow."""
        if not self.name.startswith("GPU"):
            return False
        gpus = self._tf.config.get_visible_devices("GPU")
        return not any(self._statistics.get_memory_growth(gpu) for gpu in gpus)

    def start(self) -> None:
        """Begin a new peak; neither this nor `read` waits for the device."""
        if self.counts:
            self._statistics.reset_memory_stats(self.name)

    def read(self) -> tuple[int | None, int | None]:
        """The bytes in use and the most since `start`; `None` where the allocator does not count."""
        if not self.counts:
            return None, None
        info = self._statistics.get_memory_info(self.name)
        return info["current"], info["peak"]

    def limit(self) -> int | None:
        """The bytes it was configured with; `None` where there is no limit."""
        if not self.counts:
            return None
        return next(each.limit for each in devices.memory() if each.device == self.name)

    def _has_statistics(self) -> bool:
        try:
            self._statistics.get_memory_info(self.name)
            self._statistics.reset_memory_stats(self.name)
        except (ValueError, self._tf.errors.OpError):
            return False
        return True

    def wait(self) -> None:
        """Wait until a GPU has done what it was given; a CPU never lags behind."""
        if self.name.startswith("GPU"):
            self._tf.test.experimental.sync_devices()
