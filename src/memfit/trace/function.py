"""Trace a step of a model exactly as Keras builds it for the target, without running anything."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.trace.step import Phase


class TraceError(InputError):
    """A model whose step cannot be traced."""


def step_function(model: Any, phase: Phase) -> Callable[[Any], Any]:
    """The Python function Keras would compile for a phase: one argument, the batch."""
    run = {"train": model.train_step, "evaluate": model.test_step, "predict": model.predict_step}[phase]

    def one_step_on_data(data: Any) -> Any:
        return model.distribute_strategy.run(run, args=(data,))

    return one_step_on_data


def trace(model: Any, phase: Phase, data: Any, *, gpu: bool) -> Any:
    """Trace one step to a concrete function.

    Args:
        model: A compiled, built Keras model.
        phase: Which step.
        data: The batch as a structure of `tf.TensorSpec`, the first dimension `None` or a size.
        gpu: Whether the target is a GPU: some layers choose another implementation there.

    Raises:
        TraceError: If a layer cannot be traced; it names the layer.
    """
    tf = tensorflow()
    if phase == "train" and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    function = tf.function(step_function(model, phase), reduce_retracing=True, autograph=False)
    with _as_on_a_gpu(gpu):
        try:
            return function.get_concrete_function(data)
        except Exception as error:
            # Keras and TensorFlow raise whatever a layer raises; the sentence is what the user can act on.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            # Keras puts the layer first and what it raised behind a mark.
            said = next((line for line in lines[1:] if line.startswith("\x1b[1m")), None)
            plain = re.sub(r"\x1b\[\d+m", "", " ".join(filter(None, (lines[0], said)))) if lines else ""
            reason = plain.rstrip(".") or type(error).__name__
            raise TraceError(
                f"the {phase} step of {model.name!r} cannot be traced: {reason}. "
                "Check that model.fit works on a batch of this shape, or pass an example batch as data=(x, y)."
            ) from error


@contextmanager
def _as_on_a_gpu(gpu: bool) -> Iterator[None]:
    """Let Keras build what it builds on a GPU: cuDNN's fused LSTM and GRU instead of a loop."""
    keras()
    # By module name: the package's attribute `rnn` is the function of that name.
    rnn: Any = import_module("keras.src.backend.tensorflow.rnn")
    before = rnn._is_gpu_available
    rnn._is_gpu_available = lambda: gpu
    try:
        yield
    finally:
        rnn._is_gpu_available = before
