"""MF023."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument, same
from memfit.lint.gpu_settings import growths, limits
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class MemoryGrowthWithLimit(Rule):
    """Memory growth and a limit are set on the same GPU.

    ## What it does
    Looks for `set_memory_growth(gpu, True)` and `set_logical_device_configuration(gpu, [...memory_limit=...])` on
    the same GPU, in the same function and the same branch.

    ## Why is this bad
    TensorFlow takes one or the other: `ValueError: Cannot set memory growth on device when virtual devices
    configured`. A limit takes its memory at once; growth has no limit.

    ## Example
    ```python
    tf.config.experimental.set_memory_growth(gpus[0], True)
    tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
    ```

    ## Use instead
    ```python
    tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
    ```
    or `memfit.devices.configure(limit="4GiB")`.

    ## Fix safety
    There is no fix: which of the two was meant is not said.
    """

    code = "MF023"
    name = "memory-growth-with-limit"
    why = "TensorFlow takes one or the other and stops with an error; a limit is what keeps a job small."
    instead = 'memfit.devices.configure(limit="4GiB"), or the limit alone'

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the second of the two."""
        for growth in growths(module):
            for limit in limits(module):
                together = module.function(growth) is module.function(limit) and not module.exclusive(growth, limit)
                if (
                    together
                    and self._near(module, growth, limit)
                    and same(argument(growth, "device", 0), argument(limit, "device", 0))
                ):
                    later = limit if module.before(growth, limit) else growth
                    yield Problem(later, "memory growth and a limit on the same GPU")

    def _near(self, module: Module, one: ast.Call, other: ast.Call) -> bool:
        """Whether both are in one block: cells of a notebook may be alternatives."""
        outer = [each for each in module.ancestors(one) if isinstance(each, ast.stmt)]
        there = [each for each in module.ancestors(other) if isinstance(each, ast.stmt)]
        shared = any(each in there for each in outer)
        lines = abs(one.lineno - other.lineno)
        return shared or lines <= 3
