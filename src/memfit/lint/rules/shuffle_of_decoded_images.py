"""MF006."""

import ast
from collections.abc import Iterator

from memfit.lint.expressions import argument
from memfit.lint.module import Module
from memfit.lint.pipelines import BATCHING, FROM_FOLDER, Pipeline, Step, decodes, pipelines
from memfit.lint.rule import Problem, Rule

# Images of 224 x 224 as floats take 0.57 MiB each: from here on it is hundreds of MiB.
_MANY_IMAGES, _MANY_BATCHES = 500, 50


class ShuffleOfDecodedImages(Rule):
    """Decoded images, or batches of them, wait in a large shuffle buffer.

    ## What it does
    Looks for `shuffle` with 500 or more elements, or with the length of something, after images were decoded; and
    for `shuffle` with 50 or more elements after `batch` or `image_dataset_from_directory`, where an element is a
    batch. After a cache in memory nothing is said: the buffer holds what the cache holds anyway.

    ## Why is this bad
    The buffer is filled before the first batch comes out, and stays full. Measured on a CPU: 1,000 images of 224 x
    224 in the buffer took 635 MiB of host memory, 1,000 paths 27 MiB.

    ## Example
    ```python
    def read_image(path):
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), 3), (224, 224))

    data = tf.data.Dataset.from_tensor_slices(paths).map(read_image).shuffle(len(paths)).batch(32)
    ```

    ## Use instead
    ```python
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).map(read_image).batch(32)
    ```

    ## Fix safety
    There is no fix: another order of the steps is another order of random numbers.
    """

    code = "MF006"
    name = "shuffle-of-decoded-images"
    why = "The buffer is filled with decoded images before the first batch comes out, and stays full."
    instead = "data.shuffle(len(paths)).map(read_image).batch(32)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `shuffle`."""
        for pipeline in pipelines(module):
            for step in pipeline.steps:
                if step.method == "shuffle":
                    yield from self._look(module, pipeline, step)

    def _look(self, module: Module, pipeline: Pipeline, step: Step) -> Iterator[Problem]:
        earlier = pipeline.before(step)
        if any(each.method == "cache" and not each.call.args and not each.call.keywords for each in earlier):
            return
        if any(each.method in ("unbatch", "window", "apply", "flat_map", "interleave") for each in earlier):
            return
        from_folder = pipeline.source_name == FROM_FOLDER[0]
        if not from_folder and not any(decodes(module, each) for each in earlier):
            return
        batched = pipeline.batched_at_source or any(each.method in BATCHING for each in earlier)
        size = argument(step.call, "buffer_size", 0)
        number = module.number(size)
        if number is not None and number >= (_MANY_BATCHES if batched else _MANY_IMAGES):
            what = f"{number:,.0f} {'batches of images' if batched else 'decoded images'}"
        elif _is_length(module, size):
            what = "a whole data set of decoded images"
        else:
            return
        instead = (
            "image_dataset_from_directory shuffles the paths itself: leave shuffle(...) out" if from_folder else None
        )
        yield Problem(step.word, f"shuffle keeps {what} in its buffer", instead)


def _is_length(module: Module, node: ast.expr | None) -> bool:
    if isinstance(node, ast.Name):
        node = module.value(node)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
