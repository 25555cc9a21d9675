"""MF015."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import method_name
from memfit.lint.module import Module
from memfit.lint.pipelines import METHODS, pipelines
from memfit.lint.rule import Problem, Rule

_TO_DEVICE = ("tensorflow.data.experimental.prefetch_to_device", "tensorflow.data.experimental.copy_to_device")
_ARRAYS = ("tensorflow.data.Dataset.from_tensor_slices", "tensorflow.data.Dataset.from_tensors")
_WORK = frozenset(METHODS - {"with_options", "options", "take", "skip", "repeat", "prefetch"})


class PipelineOnGpu(Rule):
    """A pipeline works, or holds its arrays, on the GPU.

    ## What it does
    Looks for steps such as `map` and `batch` after `prefetch_to_device` or `copy_to_device`, and for
    `from_tensor_slices(...)` inside `with tf.device("GPU:0")`.

    ## Why is this bad
    What comes after the copy to the GPU runs on data that is there, and takes its memory in competition with the
    model. An array that becomes a data set under the GPU's name is copied there as a whole, for as long as the data
    set lives; a step needs one batch of it.

    ## Example
    ```python
    with tf.device("/GPU:0"):
        data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    ```

    ## Use instead
    ```python
    with tf.device("CPU:0"):
        data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    ```

    ## Fix safety
    There is no fix: what else is in the block may belong on the GPU.
    """

    code = "MF015"
    name = "pipeline-on-gpu"
    why = "Preprocessing and whole arrays on the GPU take the memory the model needs; a step needs one batch."
    instead = 'with tf.device("CPU:0"): build the data set; prefetch_to_device as the last step'

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the step, or the array."""
        for pipeline in pipelines(module):
            for step in pipeline.steps:
                copied = next(
                    (each for each in pipeline.before(step) if each.method == "apply" and _copies(module, each.call)),
                    None,
                )
                if copied is not None and step.method in _WORK:
                    yield Problem(step.word, f"`{step.method}` comes after the copy to the GPU")
        for call in module.calls_to("from_tensor_slices", "from_tensors"):
            if module.callee(call) in _ARRAYS and _under_gpu(module, call):
                yield Problem(call.func, f"`{method_name(call)}` puts its whole array on the GPU")


def _copies(module: Module, call: ast.Call) -> bool:
    return bool(call.args) and module.callee(call.args[0]) in _TO_DEVICE


def _under_gpu(module: Module, call: ast.Call) -> bool:
    """Whether the innermost `with tf.device(...)` names a GPU."""
    for each in module.ancestors(call):
        if not isinstance(each, ast.With):
            continue
        for item in each.items:
            device = item.context_expr
            if module.callee(device) == "tensorflow.device" and isinstance(device, ast.Call) and device.args:
                name = device.args[0]
                return isinstance(name, ast.Constant) and "GPU" in str(name.value).upper()
    return False
