"""MF002."""

from collections.abc import Iterator

from memfit.lint.images import fit_arrays, image_arrays
from memfit.lint.keras_code import fits
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class ImageArrayPassedToFit(Rule):
    """An array of every image is given to `fit`.

    ## What it does
    Follows arrays that were stacked from image files (MF001) through scaling, splitting and functions of the same
    file to the `fit` they are given to.

    ## Why is this bad
    `fit` makes one tensor of the whole array and gathers batches from it: the data set is in memory once more, and
    on a GPU it may end up there. Measured on a CPU: `fit` on 500 images of 224 x 224 that were divided by 255 took
    1.4 GiB of host memory at the peak, on a pipeline of the same files 88 MiB.

    ## Example
    ```python
    images = np.array([cv2.imread(path) for path in glob.glob("photos/*.jpg")])
    images = images / 255.0
    model.fit(images, labels, batch_size=32)
    ```

    ## Use instead
    ```python
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).map(read_image, num_parallel_calls=tf.data.AUTOTUNE)
    model.fit(data.batch(32).prefetch(2))
    ```

    ## Fix safety
    There is no fix: the images have to be read in another place.
    """

    code = "MF002"
    name = "image-array-passed-to-fit"
    why = "fit makes one tensor of the whole array: the data set is in memory twice, as floats."
    instead = "model.fit(tf.data.Dataset.from_tensor_slices((paths, labels)).map(read_image).batch(32).prefetch(2))"

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the argument of `fit`."""
        arrays = image_arrays(module)
        if not arrays:
            return
        for call in fits(module):
            data = fit_arrays(module, call, arrays)
            if data is not None:
                yield Problem(
                    data, f"`{module.source.segment(data)}` is an array of every image, given to fit as a whole"
                )
