"""MF004."""

from collections.abc import Iterator

from memfit.lint.module import Module
from memfit.lint.pipelines import BATCHING, decodes, trained_on
from memfit.lint.rule import Problem, Rule

# What may make batches without being called so.
_UNKNOWN = ("apply", "flat_map", "group_by_window", "interleave", "window")


class DecodingWithoutBatching(Rule):
    """Images are decoded in a pipeline that goes into `fit` without `batch`.

    ## What it does
    Looks for pipelines that decode image files and are given to `fit`, and in which nothing makes batches.

    ## Why is this bad
    `fit` takes every element for a batch. One image of 224 x 224 is then a batch of 224 rows of 224 x 3, or an
    error; where a dimension is added in `map`, each step trains on one image, and `batch_size` of `fit` changes
    nothing about it.

    ## Example
    ```python
    def read_image(path):
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), 3), (224, 224))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read_image)
    model.fit(data, epochs=10)
    ```

    ## Use instead
    ```python
    data = tf.data.Dataset.list_files("photos/*.jpg").map(read_image).batch(32).prefetch(2)
    model.fit(data, epochs=10)
    ```

    ## Fix safety
    There is no fix: the size of a batch is yours to choose.
    """

    code = "MF004"
    name = "decoding-without-batching"
    why = "fit takes each element for a batch, so that the memory of a step is not what batch_size says."
    instead = "data.map(read_image).batch(32).prefetch(2)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `fit`."""
        for call, pipeline in trained_on(module):
            methods = {step.method for step in pipeline.steps}
            if methods.intersection(BATCHING) or methods.intersection(_UNKNOWN) or pipeline.batched_at_source:
                continue
            if any(decodes(module, step) for step in pipeline.steps):
                yield Problem(call.args[0] if call.args else call, "the pipeline decodes images and is never batched")
