"""MF007."""

from collections.abc import Iterator

from memfit.lint.module import Module
from memfit.lint.pipelines import augments, pipelines
from memfit.lint.rule import Problem, Rule


class CacheAfterAugmentation(Rule):
    """What was augmented at random is cached.

    ## What it does
    Looks for `cache()` after a `map` whose function draws random numbers: `tf.image.random_*`, `tf.random.*`, or
    layers such as `keras.layers.RandomFlip`.

    ## Why is this bad
    The cache keeps what the first epoch saw, and every later epoch gets the same: the augmentation happens once.
    Memory is spent on decoded and augmented floats that could have been made anew in every epoch.

    ## Example
    ```python
    def augment(image):
        return tf.image.random_flip_left_right(image)

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read_image).map(augment).cache().batch(32)
    ```

    ## Use instead
    ```python
    data = data.map(read_image).cache().map(augment).batch(32)
    ```

    ## Fix safety
    There is no fix: moving the step changes what the network sees, which is the purpose.
    """

    code = "MF007"
    name = "cache-after-augmentation"
    why = (
        "The cache keeps the first epoch's random images for good: memory is spent, and nothing is augmented any more."
    )
    instead = "data.map(read_image).cache().map(augment).batch(32)"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `cache`."""
        for pipeline in pipelines(module):
            for step in pipeline.steps:
                if step.method != "cache":
                    continue
                random = next((each for each in pipeline.before(step) if augments(module, each)), None)
                if random is not None:
                    yield Problem(
                        step.word, f"cache keeps what is augmented at random in {module.source.where(random.call)}"
                    )
