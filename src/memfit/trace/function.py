"""Trace a step of a model exactly as Keras builds it for the target, without running anything."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from memfit.compat.graph_gradients import gradients_kept_by_graphs
from memfit.compat.lifted_variables import only_lifted
from memfit.compat.optimizers import built_whole, optimizers_of
from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.trace.step import Phase

_thread = threading.local()


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
        model: A Keras model; variables it has not built yet are created, as its first step would create them.
        phase: Which step.
        data: The batch as a structure of `tf.TensorSpec`, the first dimension `None` or a size.
        gpu: Whether the target is a GPU: some layers choose another implementation there.

    Raises:
        TraceError: If a layer cannot be traced; it names the layer.
    """
    unbuilt = []
    if phase == "train":
        build_optimizer(model)
        # A step of the model's own builds its optimizers while it is traced.
        unbuilt = optimizers_of(model)
    function = tensorflow().function(step_function(model, phase), reduce_retracing=True, autograph=False)
    with as_on_gpu(gpu), gradients_kept_by_graphs():
        try:
            with built_whole(unbuilt):
                return function.get_concrete_function(data)
        except Exception as error:
            raise TraceError(
                f"the {phase} step of {model.name!r} cannot be traced: {trace_reason(error)}. "
                "Check that model.fit works on a batch of this shape, or pass an example batch as data=(x, y)."
            ) from error


def has_own_step(model: Any) -> bool:
    """Whether the class of a model brings its own `train_step`, which may use any optimizer, or several."""
    trainer: Any = import_module("keras.src.backend.tensorflow.trainer").TensorFlowTrainer
    return type(model).train_step is not trainer.train_step


def build_optimizer(model: Any) -> None:
    """Create the slots of Keras's own training step; a step of the model's own creates them when it is traced."""
    optimizer = getattr(model, "optimizer", None)  # a compile() of the model's own may set none
    if optimizer is not None and not optimizer.built and not has_own_step(model):

        def build() -> None:
            if not optimizer.built:  # a function that creates variables is traced twice
                optimizer.build(model.trainable_variables)

        # As in Keras's step: where memory runs out for a value that is made eagerly, TensorFlow crashes.
        with built_whole([optimizer]), only_lifted():
            tensorflow().function(build, autograph=False).get_concrete_function()


def build_compiled(model: Any, batch: Any) -> None:
    """Create what Keras's own training step would create: slots, metrics and losses.

    A step that creates variables is traced twice. Where Keras cannot do it beforehand, the step does.

    Args:
        model: A compiled Keras model.
        batch: A batch of data.
    """
    build_optimizer(model)
    if has_own_step(model) or not all(each.built for each in model._flatten_layers()):
        return
    with suppress(Exception):
        model._symbolic_build(data_batch=batch)


def trace_reason(error: Exception) -> str:
    """What Keras or TensorFlow raised, in one sentence: what the user can act on."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Keras puts the layer first and what it raised behind a mark.
    detail = next((line for line in lines[1:] if line.startswith("\x1b[1m")), None)
    if lines and lines[0] == "in user code:":  # AutoGraph shows the user's stack first
        lines, detail = lines[-1:], None
    plain = re.sub(r"\x1b\[\d+m", "", " ".join(filter(None, (lines[0], detail)))) if lines else ""
    return plain.rstrip(".") or type(error).__name__


@contextmanager
def as_on_gpu(gpu: bool) -> Iterator[None]:
    """Let Keras build what it builds on a GPU: cuDNN's fused LSTM and GRU instead of a loop."""
    keras()
    # By module name: the package's attribute `rnn` is the function of that name.
    rnn: Any = import_module("keras.src.backend.tensorflow.rnn")
    before = rnn._is_gpu_available
    rnn._is_gpu_available = lambda: gpu
    try:
        with tracing():
            yield
    finally:
        rnn._is_gpu_available = before


@contextmanager
def tracing() -> Iterator[None]:
    """Mark that memfit traces in this thread: what the user's code does meanwhile is not training."""
    before = is_tracing()
    _thread.is_tracing = True
    try:
        yield
    finally:
        _thread.is_tracing = before


def is_tracing() -> bool:
    """Whether memfit traces in this thread."""
    return bool(getattr(_thread, "is_tracing", False))
