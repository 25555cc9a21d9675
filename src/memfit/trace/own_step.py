"""A training step of the user's own: a `tf.function` or a Python function with example arguments."""

from typing import Any

from memfit.compat.graph_gradients import gradients_kept_by_graphs
from memfit.errors import InputError
from memfit.framework import tensorflow
from memfit.hardware.catalog import GPU
from memfit.trace.arguments import Arguments, read_arguments
from memfit.trace.batch import tracing_size
from memfit.trace.function import TraceError, as_on_gpu, trace_reason
from memfit.trace.participants import Participants, participants
from memfit.trace.source import sources_of_layers
from memfit.trace.step import Step
from memfit.trace.tracer import Owner, read_concrete


class OwnStep:
    """A training step that is traced and never run.

    Variables that the first call of the step creates, such as the slots of an optimizer, are created by the trace.

    Args:
        function: A `tf.function` or a Python function.
        data: Its example arguments; `None` takes those of an `input_signature`.
        batch_size: The batch size; `None` is that of the example.

    Raises:
        InputError: If it is not a function, or the arguments do not match it.
    """

    def __init__(self, function: Any, data: Any | None, batch_size: int | None) -> None:
        if not callable(function) or isinstance(function, type):
            raise InputError(
                f"expected a Keras model, got {type(function).__name__}. A training step (a function) works too."
            )
        is_graph = hasattr(function, "python_function") and hasattr(function, "get_concrete_function")
        plain: Any = function.python_function if is_graph else function
        self.name = _name(plain)
        self.is_compiled = bool(is_graph and function._jit_compile)
        """Whether the user asked XLA to compile it."""
        self.arguments: Arguments = read_arguments(
            plain, self.name, data, function.input_signature if is_graph else None
        )
        size = batch_size if batch_size is not None else self.arguments.example_size
        if size is None:
            raise InputError(f"the example arguments of {self.name!r} leave the batch size open. Pass batch_size=.")
        self.batch_size: int = size
        self._plain, self._autograph = plain, bool(function._autograph) if is_graph else True
        self._participants = Participants()
        self._first: Any | None = None

    def call(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        """Call the step with what `arguments.at` describes; for lowering it to XLA."""
        positional, named = arguments
        return self._graph()(*positional, **named)

    def build(self) -> Any:
        """Trace the step once with the user's batch size, which creates its variables."""
        if self._first is None:
            self._first = self._trace(self.batch_size, gpu=False)
        return self._first

    def trace_step(self, gpu: GPU | None, batch_size: int) -> Step:
        """Trace the step and optimise it as TensorFlow would for the target.

        Args:
            gpu: The target; `None` is the CPU.
            batch_size: The size to trace with where the function takes no other.

        Raises:
            TraceError: If it cannot be traced.
        """
        # Variables made in a trace that fails would be lost, so the first one is what the user would run.
        variables = self.build().variables
        size, only_batch = tracing_size(variables, self._batched_specs()), False
        try:
            concrete = self._trace(size, gpu=gpu is not None)
        except TraceError:
            concrete, size, only_batch = self._trace(batch_size, gpu=gpu is not None), batch_size, True
        owner = Owner(
            variables=self._participants.kinds(concrete),
            layers=self.layer_names,
            optimizers=[optimizer.name for optimizer in self._participants.optimizers.values()],
            sources=sources_of_layers(self._participants.layers.values()),
        )
        return read_concrete(concrete, "train", owner, gpu=gpu, size=size, only_batch=only_batch)

    @property
    def layer_names(self) -> list[str]:
        """The Keras layers that the step calls, once it was traced."""
        return [layer.name for layer in self._participants.layers.values()]

    def variable_bytes(self) -> dict[str, int]:
        """The bytes of the variables by kind."""
        concrete = self.build()
        kinds = dict(self._participants.kinds(concrete).values())
        totals: dict[str, int] = {}
        for variable in concrete.variables:
            kind = kinds.get(variable.name.partition(":")[0], "other")
            totals[kind] = totals.get(kind, 0) + int(variable.dtype.size * (variable.shape.num_elements() or 0))
        return totals

    def _graph(self) -> Any:
        """A function of our own: the user's keeps its traces, and its count of them."""
        return tensorflow().function(self._plain, autograph=self._autograph)

    def _batched_specs(self) -> Any:
        return [spec for spec in tensorflow().nest.flatten(self.arguments.at(1)) if spec is not None]

    def _trace(self, size: int, *, gpu: bool) -> Any:
        positional, named = self.arguments.at(size)
        with as_on_gpu(gpu), gradients_kept_by_graphs(), participants() as found:
            try:
                concrete = self._graph().get_concrete_function(*positional, **named)
            except Exception as error:
                raise TraceError(
                    f"{self.name!r} cannot be traced at batch size {size}: {trace_reason(error)}. "
                    "Check that it runs as a tf.function on arguments of the shapes in data=."
                ) from error
        self._participants.layers |= found.layers
        self._participants.optimizers |= found.optimizers
        self._participants.differentiated |= found.differentiated
        return concrete


def _name(function: Any) -> str:
    while hasattr(function, "func") and not hasattr(function, "__name__"):
        function = function.func  # functools.partial
    return str(getattr(function, "__name__", type(function).__name__))
