"""Whether steps are compiled by XLA or run by the graph executor: the same operations, in other memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memfit.errors import InputError
from memfit.estimation.regime import layers_without_xla
from memfit.framework import tensorflow
from memfit.techniques.instance import replaced, retraced
from memfit.techniques.technique import Verdict
from memfit.trace.tracer import refuse_unready


def check(model: Any, value: Any) -> Verdict:
    """Refuse XLA where Keras would not use it.

    Args:
        model: A built, compiled Keras model.
        value: `True` compiles with XLA, `False` does not.

    Raises:
        InputError: If the value is no bool, or XLA is asked for and a layer or a setting does not allow it.
    """
    if not isinstance(value, bool):
        raise InputError(f"jit must be True (compile with XLA) or False (do not); got {value!r}.")
    refuse_unready(model)
    if not value:
        return _verdict(model, value, "the same operations, run one by one; equal to rounding")
    if model.run_eagerly:
        raise InputError(
            f"jit=True, but {model.name!r} was compiled with run_eagerly=True, and nothing is compiled then. "
            "Call model.compile(...) without run_eagerly, or pass jit=False."
        )
    if import_module("tensorflow.python.framework.config").is_op_determinism_enabled():
        raise InputError(
            "jit=True, but op determinism is on, and Keras does not use XLA then. "
            "Leave tf.config.experimental.enable_op_determinism() out, or pass jit=False."
        )
    # On a machine with a GPU, an LSTM or GRU uses cuDNN, which XLA cannot compile.
    if unsupported := layers_without_xla(model, gpu=bool(tensorflow().config.list_physical_devices("GPU"))):
        raise InputError(
            f"jit=True, but {unsupported[0]!r} does not support XLA there. Leave jit out or pass jit=False."
        )
    return _verdict(model, value, "the same operations, compiled together by XLA; equal to rounding")


@contextmanager
def applied(model: Any, value: Any) -> Iterator[None]:
    """Compile the model's steps with XLA, or not, for the duration."""
    check(model, value)
    with retraced(model), replaced(model, "_jit_compile", value):
        yield


def _verdict(model: Any, value: bool, why: str) -> Verdict:
    # Not by the property: reading it would settle what compile(jit_compile="auto") has left open.
    layer = _drawing_layer(model) if model._jit_compile is not value else None
    if layer is None:
        return Verdict("exact", why)
    return Verdict("close", f"XLA draws other random numbers than the graph executor, and {layer.name!r} uses them")


def _drawing_layer(model: Any) -> Any | None:
    """The first layer that draws random numbers when it trains."""
    return next(
        (layer for layer in model._flatten_layers() if layer._seed_generators and not _rates_are_zero(layer)), None
    )


def _rates_are_zero(layer: Any) -> bool:
    # Recurrent layers have a generator also where they do not use it.
    return getattr(layer, "dropout", None) == 0 and getattr(layer, "recurrent_dropout", None) == 0
