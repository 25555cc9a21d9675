"""What Keras makes of `jit_compile="auto"`, resolved for a device that need not be the one at hand."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class AutoJit:
    """The resolution: `True` XLA, `False` the graph executor, `None` not known; and why."""

    value: bool | None
    reason: str


def auto_jit(
    *,
    gpu: bool | None,
    deterministic: bool = False,
    distributed: bool = False,
    unsupported_layers: Sequence[str] = (),
) -> AutoJit:
    """Resolve `jit_compile="auto"` as Keras 3 does (`Trainer._resolve_auto_jit_compile`).

    Args:
        gpu: Whether TensorFlow sees a GPU on the target.
        deterministic: Whether op determinism is on.
        distributed: Whether a `tf.distribute` strategy is used.
        unsupported_layers: Names of layers with `supports_jit = False`.
    """
    if gpu is None:
        return AutoJit(None, "it depends on whether TensorFlow sees a GPU, which is not known")
    if not gpu:
        return AutoJit(False, "TensorFlow sees no GPU")
    if distributed:
        return AutoJit(False, "a tf.distribute strategy is in use")
    if unsupported_layers:
        names = ", ".join(unsupported_layers[:3])
        return AutoJit(False, f"layers do not support it: {names}")
    if deterministic:
        return AutoJit(False, "op determinism is on")
    return AutoJit(True, "TensorFlow sees a GPU and every layer supports XLA")
