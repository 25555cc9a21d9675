"""MF014."""

import ast
from collections.abc import Iterator

from memfit.lint.module import Module
from memfit.lint.pipelines import Pipeline, trained_on
from memfit.lint.rule import Problem, Rule


class MissingPrefetch(Rule):
    """A pipeline without TensorFlow's own optimisations goes into `fit` without `prefetch`.

    ## What it does
    Looks for pipelines that are given to `fit`, whose options say `apply_default_optimizations = False`, and that
    prefetch nothing. Other pipelines are left alone: TensorFlow puts a prefetch at their end by itself
    (`inject_prefetch`). That was tried with TensorFlow 2.21: a loop of 20 steps of 50 ms over a pipeline that takes
    50 ms an element took 1.0 s with and without `prefetch`, and 2.0 s without `prefetch` and without the default
    optimisations.

    ## Why is this bad
    The GPU waits for every batch. People then make batches larger to keep it busy, and it is the memory that pays.

    ## Example
    ```python
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    data = tf.data.Dataset.list_files("photos/*.jpg").map(read_image).batch(32)
    model.fit(data.with_options(options), epochs=10)
    ```

    ## Use instead
    ```python
    options.experimental_optimization.apply_default_optimizations = False
    model.fit(data.map(read_image).batch(32).prefetch(2).with_options(options))
    ```

    ## Fix safety
    There is no fix: it is better to leave the option out.
    """

    code = "MF014"
    name = "missing-prefetch"
    why = (
        "With the default optimisations off, TensorFlow adds no prefetch of its own, and the GPU waits for every batch."
    )
    instead = "data.batch(32).prefetch(2)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the data of the `fit`."""
        if "apply_default_optimizations" not in module.source.text:
            return
        switched_off = {
            target.value.value.id
            for assign in module.outline.attributes
            for target in assign.targets
            if isinstance(target, ast.Attribute)
            and target.attr == "apply_default_optimizations"
            and isinstance(assign.value, ast.Constant)
            and assign.value.value is False
            and isinstance(target.value, ast.Attribute)
            and isinstance(target.value.value, ast.Name)
        }
        for call, pipeline in trained_on(module):
            if _uses(pipeline, switched_off) and not any(step.method == "prefetch" for step in pipeline.steps):
                yield Problem(
                    call.args[0] if call.args else call, "the pipeline prefetches nothing, and TensorFlow may not"
                )


def _uses(pipeline: Pipeline, options: set[str]) -> bool:
    return any(
        step.method == "with_options"
        and bool(step.call.args)
        and isinstance(step.call.args[0], ast.Name)
        and step.call.args[0].id in options
        for step in pipeline.steps
    )
