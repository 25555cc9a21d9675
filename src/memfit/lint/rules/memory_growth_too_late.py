"""MF021."""

import ast
from collections.abc import Iterator

from memfit.lint.gpu_settings import growths, starts_gpus
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class MemoryGrowthTooLate(Rule):
    """Memory growth is set after TensorFlow has set the GPU up.

    ## What it does
    Looks for `set_memory_growth` after a call in the same block, or in a block around it, that makes TensorFlow set
    its devices up: a tensor, a variable, a pretrained model, `list_logical_devices`, `tf.test.is_gpu_available`.

    ## Why is this bad
    TensorFlow refuses: `RuntimeError: Physical devices cannot be modified after being initialized`. Where the error
    is caught and printed, as the guide shows it, the program goes on with nearly all of the GPU's memory taken.

    ## Example
    ```python
    print(tf.test.is_gpu_available())
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    ```

    ## Use instead
    ```python
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    print(tf.config.list_logical_devices("GPU"))
    ```

    ## Fix safety
    There is no fix: the lines have to move up.
    """

    code = "MF021"
    name = "memory-growth-too-late"
    why = "TensorFlow refuses to change a GPU that is in use; nearly all of its memory is taken by then."
    instead = "set memory growth directly after importing TensorFlow, before anything else of it is called"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the late call."""
        for call in growths(module):
            earlier = next((each for each in module.calls if self._comes_first(module, each, call)), None)
            if earlier is not None:
                name = module.source.segment(earlier.func)
                yield Problem(
                    call, f"memory growth is set after `{name}` in {module.source.where(earlier)} has set the GPU up"
                )

    def _comes_first(self, module: Module, earlier: ast.Call, growth: ast.Call) -> bool:
        if not module.before(earlier, growth) or not starts_gpus(module, earlier):
            return False
        # It has to run whenever the other one does: in a block around it, and in no branch of its own.
        statement = module.statement(earlier)
        block = None if statement is None else module.parent(statement)
        if block is None or not module.inside(growth, block) or module.exclusive(earlier, growth):
            return False
        return not isinstance(block, ast.If | ast.ClassDef) and module.function(earlier) is module.function(growth)
