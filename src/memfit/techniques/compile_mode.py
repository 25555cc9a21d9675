"""Whether steps are compiled by XLA or run by the graph executor: the same operations, in other memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memfit.errors import InputError
from memfit.estimation.regime import resolve_regime
from memfit.framework import tensorflow
from memfit.techniques.instance import retraced
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
        return Verdict("exact", "the same operations, run one by one; equal to rounding")
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
    resolve_regime(model, True, gpu=bool(tensorflow().config.list_physical_devices("GPU")))
    return Verdict("exact", "the same operations, compiled together by XLA; equal to rounding")


@contextmanager
def applied(model: Any, value: Any) -> Iterator[None]:
    """Compile the model's steps with XLA, or not, for the duration."""
    check(model, value)
    # Not by the property: reading it would settle what compile(jit_compile="auto") has left open.
    before = model._jit_compile
    with retraced(model):
        try:
            model._jit_compile = value
            yield
        finally:
            model._jit_compile = before
