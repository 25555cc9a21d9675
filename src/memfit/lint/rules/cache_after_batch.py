"""MF008."""

import ast
import re
from collections.abc import Iterator

from memfit.lint.expressions import argument
from memfit.lint.module import Module
from memfit.lint.pipelines import BATCHING, Pipeline, Step, pipelines
from memfit.lint.rule import Problem, Rule

_NOT_TRAINING = re.compile(r"val|test|eval|dev", re.IGNORECASE)


class CacheAfterBatch(Rule):
    """Training data is cached after `batch`.

    ## What it does
    Looks for pipelines that are shuffled, as training data is, and whose `cache()` comes after `batch(...)`.
    Validation data may be cached that way: what is called so, what is not shuffled, and what is shuffled once in
    order to be split (`reshuffle_each_iteration=False`, or `take` and `skip` after it) is left alone, and so are
    batches that are worked on before they are cached and shuffled afterwards.

    ## Why is this bad
    What is cached is the batches of the first epoch, and every later epoch gets the same ones. A `shuffle` before
    it acts once, and its buffer is filled for nothing afterwards; one after it moves whole batches. The memory of
    the cache is better spent before `shuffle`.

    ## Example
    ```python
    train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(32).cache()
    ```

    ## Use instead
    ```python
    train = train.cache().shuffle(1000).batch(32)
    ```

    ## Fix safety
    There is no fix: the order of the samples changes, which is the purpose.
    """

    code = "MF008"
    name = "cache-after-batch"
    why = "The batches of the first epoch are kept and repeated: shuffling acts once, or moves whole batches."
    instead = "train.cache().shuffle(1000).batch(32).prefetch(2)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `cache`."""
        for pipeline in pipelines(module):
            for step in pipeline.steps:
                if step.method != "cache" or any(each.method == "unbatch" for each in pipeline.steps):
                    continue
                batch = next((each for each in pipeline.before(step) if each.method in BATCHING), None)
                if batch is None or not _is_shuffled(pipeline) or _is_for_validation(module, step):
                    continue
                if not _is_work_on_batches(pipeline, batch, step):
                    where = module.source.where(batch.call)
                    yield Problem(step.word, f"cache keeps whole batches, made in {where}")


def _is_shuffled(pipeline: Pipeline) -> bool:
    """Whether each epoch is meant to be in another order."""
    for number, step in enumerate(pipeline.steps):
        if step.method == "shuffle":
            again = argument(step.call, "reshuffle_each_iteration", 2)
            fixed = isinstance(again, ast.Constant) and again.value is False
            return not fixed and not any(each.method in ("take", "skip") for each in pipeline.steps[number:])
    return False


def _is_work_on_batches(pipeline: Pipeline, batch: Step, cache: Step) -> bool:
    """Whether batches are worked on before they are cached, as text is, and shuffled afterwards."""
    shuffle = next(number for number, each in enumerate(pipeline.steps) if each.method == "shuffle")
    between = pipeline.steps[pipeline.steps.index(batch) : pipeline.steps.index(cache)]
    return shuffle > pipeline.steps.index(cache) and any(each.method == "map" for each in between)


def _is_for_validation(module: Module, step: Step) -> bool:
    statement = module.statement(step.call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(_NOT_TRAINING.search(module.source.segment(each)) for each in targets)
