"""What XLA makes of a function without running it: the calls behind `tf.function.experimental_get_compiler_ir`.

Checked with TensorFlow 2.18 to 2.21. Public, `experimental_get_compiler_ir` would take a concrete function, as
`from_concrete_function` does, but with variables.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from memfit.framework import tensorflow


def optimised_hlo(name: str, arguments: Sequence[Any], captured: Sequence[Any], device: str) -> bytes:
    """Compile a function for a device of this process.

    Args:
        name: The function's name in the eager context.
        arguments: A `tf.TensorSpec` of each of its arguments.
        captured: The handles and tensors that it closed over.
        device: The device's name.

    Returns:
        A serialized `HloProto` with its buffer assignment.
    """
    found: bytes = _context().get_compiler_ir(
        device_name=device,
        platform_name=None,
        function_name=name,
        flat_args=list(arguments),
        captured_inputs=list(captured),
        stage="optimized_hlo_proto_serialized",
    )
    return found


def definitions_of(concrete: Any) -> list[bytes]:
    """A traced function and all that it calls, to be added to the eager context of another process."""
    called = concrete.graph.as_graph_def().library.function
    return [each.SerializeToString() for each in (concrete.function_def, *called)]


def captured_by(concrete: Any) -> list[tuple[str, Any]]:
    """What a function closed over: tensors by their values, variables by shape and type, which is all XLA needs."""
    tf = tensorflow()
    handles = import_module("tensorflow.python.ops.handle_data_util")
    found: list[tuple[str, Any]] = []
    for outside, inside in concrete.graph.captures:
        if outside.dtype != tf.resource:
            found.append(("constant", outside.numpy()))
            continue
        (value,) = handles.get_resource_handle_data(inside).shape_and_type
        shape = [each.size for each in value.shape.dim]
        found.append(("variable", (shape, tf.dtypes.as_dtype(value.dtype).name)))
    return found


def add_definitions(definitions: Iterable[bytes]) -> None:
    """Make functions of another process known to this one."""
    from tensorflow.core.framework import function_pb2

    for each in definitions:
        _context().add_function_def(function_pb2.FunctionDef.FromString(each))


def _context() -> Any:
    context = import_module("tensorflow.python.eager.context").context()
    context.ensure_initialized()
    return context
