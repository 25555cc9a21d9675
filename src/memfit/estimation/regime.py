"""Which of TensorFlow's two ways of running a step the target will take."""

from importlib import import_module
from typing import Any, Literal

from memfit.compat.compile_arguments import given_jit
from memfit.errors import InputError
from memfit.framework import keras
from memfit.hardware.compile_mode import AutoJit, auto_jit

Regime = Literal["graph", "xla"]
Jit = Literal["auto"] | bool


def resolve_regime(model: Any, jit: Jit, *, gpu: bool) -> tuple[Regime, str]:
    """Resolve `jit_compile` for the target, never for the machine the prediction runs on.

    Args:
        model: The model.
        jit: What `compile(jit_compile=...)` was given. Keras forgets it: on a machine without a GPU a model compiled
            with "auto" and one compiled with `False` look the same, so "auto" is assumed unless memfit loaded it.
        gpu: Whether the target is a GPU.

    Returns:
        The regime and why.

    Raises:
        InputError: If `jit` is none of them.
    """
    given = given_jit(model)
    if jit == "auto" and given is not None:
        jit = given
    unsupported = layers_without_xla(model, gpu=gpu)
    determinism = import_module("tensorflow.python.framework.config").is_op_determinism_enabled()
    if jit is True:
        # Keras warns and trains without it (`Trainer.jit_compile`).
        if unsupported:
            return "graph", f"jit_compile=True, but {unsupported[0]!r} does not support XLA, so Keras does without"
        if determinism:
            return "graph", "jit_compile=True, but op determinism is on, so Keras does without"
        return "xla", "jit_compile=True"
    if jit is False or model.run_eagerly:
        return "graph", "jit_compile=False" if jit is False else "run_eagerly=True"
    if jit != "auto":
        raise InputError(f'jit={jit!r} is not one of "auto", True, False.')
    if model.compiled and model.jit_compile:
        return "xla", "the model was compiled with jit_compile=True"
    resolved: AutoJit = auto_jit(gpu=gpu, deterministic=determinism, unsupported_layers=unsupported)
    return "xla" if resolved.value else "graph", f'jit_compile="auto": {resolved.reason}'


def resolve_function_regime(is_compiled: bool, jit: Jit) -> tuple[Regime, str]:
    """The same for a training step of the user's own, which TensorFlow never compiles by itself.

    Args:
        is_compiled: Whether it is a `tf.function` with `jit_compile=True`.
        jit: What the user asked for; "auto" is what the function says.

    Returns:
        The regime and why.
    """
    if jit not in ("auto", True, False):
        raise InputError(f'jit={jit!r} is not one of "auto", True, False.')
    if jit == "auto":
        setting = "jit_compile=True" if is_compiled else "no jit_compile=True"
        return "xla" if is_compiled else "graph", f"a function with {setting}"
    return "xla" if jit else "graph", f"jit_compile={jit}"


def layers_without_xla(model: Any, *, gpu: bool) -> tuple[str, ...]:
    """The names of a model's layers that keep Keras from compiling it."""
    layers = keras().layers
    found = []
    for layer in model._flatten_layers(include_self=False):
        # Built without a GPU, a layer does not know that it would use cuDNN there.
        fused = gpu and isinstance(layer, layers.LSTM | layers.GRU) and _uses_cudnn(layer)
        if fused or not layer.supports_jit:
            found.append(layer.name)
    return tuple(found)


def _uses_cudnn(layer: Any) -> bool:
    if layer.use_cudnn is False or layer.recurrent_dropout:
        return False
    rnn: Any = import_module("keras.src.backend.tensorflow.rnn")
    cell = layer.cell
    if hasattr(cell, "reset_after"):
        return bool(
            rnn._do_gru_arguments_support_cudnn(
                cell.activation, cell.recurrent_activation, layer.unroll, cell.use_bias, cell.reset_after
            )
        )
    return bool(
        rnn._do_lstm_arguments_support_cudnn(cell.activation, cell.recurrent_activation, layer.unroll, cell.use_bias)
    )
