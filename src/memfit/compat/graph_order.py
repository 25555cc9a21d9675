"""Operations of the graph that is being traced, and the order in which they run.

Checked with TensorFlow 2.21. `tf.control_dependencies` orders only what is traced after it; a public way to add a
control input to an operation would replace `place_after`.
"""

from typing import Any

from memfit.framework import tensorflow


def operations_since(count: int) -> list[Any]:
    """The operations of the current graph without its first `count`."""
    return list(tensorflow().compat.v1.get_default_graph().get_operations())[count:]


def operation_count() -> int:
    """How many operations the current graph has; 0 where operations run at once."""
    tf = tensorflow()
    return 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())


def place_after(operation: Any, earlier: Any) -> None:
    """Have an operation wait for an earlier one, which must not depend on it."""
    operation._add_control_input(earlier)
