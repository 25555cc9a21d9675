"""Layers run on given values instead of their variables, with the updates they make collected instead of written.

Keras's own `StatelessScope` differs from a plain step in two ways: a variable that was updated is read back with a
gradient to whatever the update was computed from, and an update of a variable nobody named is lost.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from memfit.framework import keras, tensorflow


def state_scope(values: Iterable[tuple[Any, Any]]) -> Any:
    """A scope in which variables have these values.

    Args:
        values: Pairs of a Keras variable and its value. Variables that are not named have their current value.

    Returns:
        A context manager. `updates` lists `(variable, value)` for each variable that was assigned inside, in the order
        of the first assignment; `read` lists `(variable, value)` for each variable that was read without being named;
        `losses` lists what layers added with `add_loss`.
    """
    return _scope_class()(values)


@cache
def _scope_class() -> Any:
    class StateScope(keras().StatelessScope):  # type: ignore[misc]
        def __init__(self, values: Iterable[tuple[Any, Any]]) -> None:
            super().__init__(list(values), collect_losses=True)
            self._updated: dict[int, Any] = {}
            self._read: dict[int, tuple[Any, Any]] = {}

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
            tf = tensorflow()
            # A variable read after an assignment has the new value, and its gradient is the variable's own.
            value = tf.stop_gradient(tf.convert_to_tensor(value))
            if variable.trainable and value.dtype.is_floating:
                before = self.get_current_value(variable)
                value += before - tf.stop_gradient(before)
            self._updated[id(variable)] = variable
            super().add_update((variable, value))

        def _unnamed(self, variable: Any) -> Any:
            if variable.trainable:
                # Read where it stands, so that gradients reach the variable.
                return None
            value = tensorflow().convert_to_tensor(variable._value)
            self._read[id(variable)] = variable, value
            self.state_mapping[id(variable)] = value
            return value

    return StateScope
