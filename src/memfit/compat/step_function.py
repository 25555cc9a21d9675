"""A model's step as Keras compiles it, together with everything that running it can change.

What a step can change is read off the traced function: it captures the handle of every variable it touches, whoever
owns it. Lists of a model's variables miss Keras's global seed, metrics inside layers and variables of the user's own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from memfit.compat.graph_gradients import gradients_kept_by_graphs
from memfit.compat.variables import variables_of
from memfit.framework import keras, tensorflow

# Operations that only read a variable.
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")

Step = Callable[[Any], Any]
"""`train_step` or `test_step`: from a batch to logs."""


@dataclass(frozen=True)
class StateVariable:
    """A variable that a traced step reads or writes."""

    handle: Any
    dtype: Any
    shape: tuple[int | None, ...]
    path: str
    """Keras's path, or a number where the model does not hold the variable."""
    held: bool
    """Whether the model, its metrics or its optimizers hold it, or Keras as its seed."""
    changed: bool
    """Whether the step may change it."""

    def read(self) -> Any:
        """Its value as an array."""
        # By itself: a function that reads them all takes seconds to trace and to start for the first time.
        return tensorflow().raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype).numpy()

    def write(self, value: Any) -> None:
        """Give it a value."""
        tf = tensorflow()
        tf.raw_ops.AssignVariableOp(resource=self.handle, value=tf.convert_to_tensor(value, self.dtype))


class StepFunction:
    """One step of a model, traced as Keras traces it.

    Args:
        model: A compiled Keras model; what is applied to it when the step is traced is part of the step.
        step: The model's `train_step` or `test_step`.
        jit: Whether XLA compiles it; `None` is what the model says.
    """

    def __init__(self, model: Any, step: Step, *, jit: bool | None = None) -> None:
        tf = tensorflow()
        self._model = model
        self._traced: list[Any] = []

        # The same body as in Keras's `_make_function`, so that the graph and its operation seeds are the same.
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator, unused-ignore]
        def one_step_on_data(data: Any) -> Any:
            outputs = model.distribute_strategy.run(step, args=(data,))
            return _reduced(outputs, model.distribute_strategy)

        compiled = model.jit_compile if jit is None else jit
        self._function = tf.function(one_step_on_data, reduce_retracing=True, jit_compile=compiled)

    def trace(self, spec: Any) -> None:
        """Trace the step for batches of this structure of `tf.TensorSpec`; nothing runs."""
        with gradients_kept_by_graphs():
            self._traced.append(self._function.get_concrete_function(spec))
        self.__dict__.pop("state", None)
        self.__dict__.pop("_read_all", None)

    def __call__(self, data: Any) -> Any:
        """Run the step on a batch; returns what Keras's step returns."""
        with gradients_kept_by_graphs():
            return self._function(data)

    def on_next(self, iterator: Any) -> Any:
        """Run the step on a dataset iterator's next batch, which goes to the device without a detour through Python.

        Raises:
            OutOfRangeError: If there is no next batch, as in Keras's own function.
        """
        with gradients_kept_by_graphs():
            return self._on_next(iterator)

    @cached_property
    def _on_next(self) -> Any:
        tf = tensorflow()
        return tf.function(
            lambda iterator: self._function(without_optionals(iterator.get_next())),
            reduce_retracing=True,
            autograph=False,
        )

    @property
    def traced(self) -> bool:
        """Whether the step was traced."""
        return bool(self._traced)

    @cached_property
    def state(self) -> tuple[StateVariable, ...]:
        """Every variable the step reads or writes."""
        paths = _paths(self._model)
        found: dict[int, StateVariable] = {}
        for concrete in self._traced:
            for handle, inside in _captured(concrete):
                shape_and_type = _shape_and_type(handle)
                if shape_and_type is None or id(handle) in found:
                    continue
                shape, dtype = shape_and_type
                path = paths.get(id(handle))
                found[id(handle)] = StateVariable(
                    handle,
                    dtype,
                    shape,
                    path or f"variable {len(found)}",
                    held=path is not None,
                    changed=any(each.type not in _READS for each in inside.consumers()),
                )
        return tuple(found.values())

    @property
    def operations(self) -> Iterator[Any]:
        """All operations of the traced graphs, those of called functions included."""
        for concrete in self._traced:
            yield from _operations(concrete.graph)

    def hold(self) -> Any:
        """Keep the values of all state on the device, without copying them: TensorFlow copies before it overwrites."""
        return self._read_all()

    def values(self, held: Any) -> list[Any]:
        """The tensors that `hold` kept, in the order of `state`."""
        return list(
            tensorflow().raw_ops.OptionalGetValue(
                optional=held,
                output_types=[each.dtype for each in self.state],
                output_shapes=[tensorflow().TensorShape(each.shape) for each in self.state],
            )
        )

    def read(self) -> list[Any]:
        """The values of all state as arrays, in the order of `state`."""
        return [each.read() for each in self.state]

    def write(self, values: Sequence[Any]) -> None:
        """Give all state these values, in the order of `state`."""
        for variable, value in zip(self.state, values, strict=True):
            variable.write(value)

    @cached_property
    def _read_all(self) -> Any:
        tf, state = tensorflow(), self.state

        def read_all() -> Any:
            # One output for all of them: passing hundreds of tensors to Python takes longer than reading them.
            values = [tf.raw_ops.ReadVariableOp(resource=each.handle, dtype=each.dtype) for each in state]
            return tf.raw_ops.OptionalFromValue(components=values)

        return tf.function(read_all, autograph=False).get_concrete_function()


@contextmanager
def as_traced() -> Iterator[None]:
    """Run functions inside as they were traced: optimizing a graph takes longer than running it once."""
    options = tensorflow().config.optimizer
    name = "disable_meta_optimizer"
    before = bool(options.get_experimental_options().get(name, False))
    options.set_experimental_options({name: True})
    try:
        yield
    finally:
        options.set_experimental_options({name: before})


def without_optionals(data: Any) -> Any:
    """A batch, or its spec, with `None` where Keras passes an empty optional, as Keras's own function does."""
    tf = tensorflow()
    kinds = (tf.experimental.Optional, tf.OptionalSpec)
    return keras().tree.map_structure(lambda each: None if isinstance(each, kinds) else each, data)


def stateful_random_operations(function: StepFunction) -> list[str]:
    """Names of operations that draw from a generator of their own, which cannot be put back.

    All of them have two seeds: `tf.random`, `tf.image.random_*`, the samplers of `tf.nn`.
    """
    return [each.name for each in function.operations if each.op_def.is_stateful and _is_seeded(each)]


def _is_seeded(operation: Any) -> bool:
    return any(each.name == "seed2" for each in operation.op_def.attr)


def has_gradients_of_convolutions(function: StepFunction) -> bool:
    """Whether a step computes any, transposed convolutions included."""
    return any(each.type.startswith("Conv2DBackprop") for each in function.operations)


def _reduced(outputs: Any, strategy: Any) -> Any:
    return import_module("keras.src.backend.tensorflow.trainer").reduce_per_replica(outputs, strategy, reduction="auto")


def _captured(concrete: Any) -> Iterator[tuple[Any, Any]]:
    """The handles of variables that a function uses, each with its tensor inside the function."""
    for external, inside in concrete.graph.captures:
        if external.dtype == tensorflow().resource:
            yield external, inside


def _shape_and_type(handle: Any) -> tuple[tuple[int | None, ...], Any] | None:
    """Shape and type of the variable behind a handle; `None` for a table, an iterator and other resources."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    known = data.shape_and_type[0]
    shape = tensorflow().TensorShape(known.shape)
    return tuple(shape.as_list()) if shape.rank is not None else (), tensorflow().as_dtype(known.dtype)


def _operations(graph: Any) -> Iterator[Any]:
    yield from graph.get_operations()
    for name in graph._functions:
        called = graph._get_function(name)
        if called is not None and getattr(called, "graph", None) is not None:
            yield from _operations(called.graph)


def _paths(model: Any) -> dict[int, str]:
    """Keras's paths of variables by the identity of their handles."""
    paths = {
        id(each._value.handle): each.path for each in variables_of(model) if getattr(each, "_value", None) is not None
    }
    generator = import_module("keras.src.backend.common.global_state").get_global_attribute("global_seed_generator")
    return paths if generator is None else {**paths, id(generator.state._value.handle): "Keras's global seed"}
