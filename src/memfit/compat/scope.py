"""Layers run on given values instead of their variables, with the updates they make collected instead of written.

Keras's own `StatelessScope` differs from a plain step in three ways: a variable that was updated is read back with a
gradient to whatever the update was computed from, an update of a variable nobody named is lost, and under mixed
precision the values are rounded to the precision of whoever opens the scope.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow


def state_scope(values: Iterable[tuple[Any, Any]]) -> Any:
    """A scope in which variables have these values.

    Args:
        values: Pairs of a Keras variable and its value. Variables that are not named have their current value.

    Returns:
        A context manager. `updates` lists `(variable, value)` for each variable that was assigned inside, in the order
        of the first assignment; `read` lists `(variable, value)` with the first value of each variable that was not
        named and was read, or assigned if it is trainable; `losses` lists what layers added with `add_loss`.

    Raises:
        InputError: Inside, if a variable is assigned in a loop or condition of TensorFlow within the scope.
    """
    return _scope_class()(values)


def own_gradient(value: Any, variable: Any) -> Any:
    """A value whose gradient is the one of a variable, as if the variable had that value when it was read."""
    return tensorflow().stop_gradient(value) + (variable - tensorflow().stop_gradient(variable))


@cache
def _scope_class() -> Any:
    class StateScope(keras().StatelessScope):  # type: ignore[misc]
        def __init__(self, values: Iterable[tuple[Any, Any]]) -> None:
            super().__init__(collect_losses=True)
            self.state_mapping = {id(variable): value for variable, value in values}
            self._updated: dict[int, Any] = {}
            self._read: dict[int, tuple[Any, Any]] = {}
            self._graph: Any = None

        def __enter__(self) -> Any:
            self._graph = _current_graph()
            return super().__enter__()

        @property
        def updates(self) -> list[tuple[Any, Any]]:
            return [(variable, self.state_mapping[key]) for key, variable in self._updated.items()]

        @property
        def read(self) -> list[tuple[Any, Any]]:
            return list(self._read.values())

        def get_current_value(self, variable: Any) -> Any:
            value = super().get_current_value(variable)
            if value is None and variable._value is not None:
                value = self._unnamed(variable)
            return value

        def add_update(self, update: tuple[Any, Any]) -> None:
            variable, value = update
            if _current_graph() is not self._graph:
                raise InputError(
                    f"{variable.path!r} is assigned inside a loop, a condition or a tf.function of a layer's call. "
                    "memfit must write such an update after the layer has run, and cannot take it out of there. "
                    "Plan without this layer, or move the assignment out of the loop."
                )
            tf = tensorflow()
            # A variable read after an assignment has the new value, and its gradient is the variable's own.
            value = tf.stop_gradient(tf.convert_to_tensor(value))
            if variable.trainable and value.dtype.is_floating:
                named = id(variable) in self.state_mapping
                before = self.get_current_value(variable)
                if not named:
                    self._read[id(variable)] = variable, tf.stop_gradient(before)
                value = own_gradient(value, before)
            self._updated[id(variable)] = variable
            super().add_update((variable, value))

        def _unnamed(self, variable: Any) -> Any:
            value = tensorflow().convert_to_tensor(variable._value)
            # A trainable one is read where it stands, so that gradients reach the variable. What is read inside a
            # loop cannot be kept for outside.
            if not variable.trainable and _current_graph() is self._graph:
                self._read[id(variable)] = variable, value
                self.state_mapping[id(variable)] = value
            return value

    return StateScope


def _current_graph() -> Any:
    tf = tensorflow()
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
