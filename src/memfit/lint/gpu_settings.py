"""Calls that configure GPUs, and those that set them up so that it is too late to."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument, is_true
from memfit.lint.module import Module
from memfit.lint.pipelines import METHODS

GROWTH = "tensorflow.config.set_memory_growth"
_LIMITS = (
    "tensorflow.config.set_logical_device_configuration",
    "tensorflow.config.set_virtual_device_configuration",
)
# Each of these makes TensorFlow set its devices up, as everything does that computes.
_STARTING = frozenset({
    "tensorflow.config.list_logical_devices", "tensorflow.test.is_gpu_available", "tensorflow.test.gpu_device_name",
    "tensorflow.constant", "tensorflow.Variable", "tensorflow.zeros", "tensorflow.ones", "tensorflow.matmul",
    "tensorflow.random.normal", "tensorflow.random.uniform", "tensorflow.convert_to_tensor", "keras.models.load_model",
    "tensorflow.distribute.MirroredStrategy",
})  # fmt: skip


def growths(module: Module) -> Iterator[ast.Call]:
    """Every `set_memory_growth(..., True)`."""
    for call in module.calls_to("set_memory_growth"):
        if module.callee(call) == GROWTH and is_true(argument(call, "enable", 1)):
            yield call


def limits(module: Module) -> Iterator[ast.Call]:
    """Every call that sets a limit of memory on a GPU."""
    for call in module.calls_to("set_logical_device_configuration", "set_virtual_device_configuration"):
        if module.callee(call) in _LIMITS and any(
            isinstance(each, ast.keyword) and each.arg == "memory_limit" for each in ast.walk(call)
        ):
            yield call


def starts_gpus(module: Module, call: ast.Call) -> bool:
    """Whether a call makes TensorFlow set its devices up."""
    name = module.callee(call)
    if name is None:
        return False
    if name in _STARTING or (name.startswith("keras.applications.") and name.rpartition(".")[2][:1].isupper()):
        return True
    return name.startswith("tensorflow.data.Dataset.from_tensor") and name.rpartition(".")[2] not in METHODS
