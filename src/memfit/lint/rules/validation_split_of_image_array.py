"""MF003."""

from collections.abc import Iterator

from memfit.lint.expressions import argument
from memfit.lint.images import fit_arrays, image_arrays
from memfit.lint.keras_code import fits
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class ValidationSplitOfImageArray(Rule):
    """`validation_split` is used on an array of every image.

    ## What it does
    Looks for `fit(..., validation_split=...)` on arrays that were stacked from image files (MF001).

    ## Why is this bad
    Splitting needs the whole array, and both parts become tensors of their own, which live side by side while
    validation runs. Measured on a CPU: `fit(validation_split=0.2)` on 574 MiB of images took another 936 MiB of
    host memory at the peak; two pipelines took 87 MiB. On a GPU it ends in `OOM when allocating tensor` before the
    first step (tensorflow#45708).

    ## Example
    ```python
    images = np.array([cv2.imread(path) for path in glob.glob("photos/*.jpg")])
    model.fit(images, labels, validation_split=0.2)
    ```

    ## Use instead
    ```python
    train, validation = keras.utils.image_dataset_from_directory("photos", validation_split=0.2, subset="both", seed=0)
    model.fit(train, validation_data=validation)
    ```

    ## Fix safety
    There is no fix: paths have to be split instead of images.
    """

    code = "MF003"
    name = "validation-split-of-image-array"
    why = "Both parts become tensors of their own and live side by side: the data set is in memory twice."
    instead = 'keras.utils.image_dataset_from_directory(folder, validation_split=0.2, subset="both", seed=0)'

    def check(self, module: Module) -> Iterator[Problem]:
        """Find the keyword."""
        arrays = image_arrays(module)
        for call in fits(module) if arrays else ():
            split = argument(call, "validation_split")
            if split is not None and module.number(split) != 0 and fit_arrays(module, call, arrays) is not None:
                yield Problem(split, "validation_split on an array of every image")
