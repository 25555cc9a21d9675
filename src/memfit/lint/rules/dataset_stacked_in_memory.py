"""MF001."""

from collections.abc import Iterator

from memfit.lint.images import image_arrays
from memfit.lint.module import Module
from memfit.lint.rule import Problem, Rule


class DatasetStackedInMemory(Rule):
    """Every image of a folder is read into a list, and the list is made an array.

    ## What it does
    Looks for loops over files in which images are read and appended to a list that becomes one array afterwards.
    Batches that a generator gives out, single folders of an outer loop and slices such as `paths[:9]` are left
    alone.

    ## Why is this bad
    The list and the array are in memory at the same time, decoded: a JPEG takes ten times its size or more. Scaling
    by `/ 255.0` makes another array, of 64-bit floats. Measured on a CPU: 1,000 images of 224 x 224 took 1.4 GiB of
    host memory at the peak, a pipeline of batches took 68 MiB.

    ## Example
    ```python
    images = []
    for path in glob.glob("photos/*.jpg"):
        images.append(cv2.imread(path))
    images = np.array(images)
    ```

    ## Use instead
    ```python
    def read(path):
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), 3), (224, 224))

    data = tf.data.Dataset.list_files("photos/*.jpg").map(read, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(32).prefetch(2)
    ```
    or `keras.utils.image_dataset_from_directory("photos", batch_size=32)`.

    ## Fix safety
    There is no fix: what comes after has to take batches.
    """

    code = "MF001"
    name = "dataset-stacked-in-memory"
    why = "List and array are in memory at once, decoded: ten times the size of the files or more."
    instead = (
        "tf.data.Dataset.list_files(...).map(read_image).batch(32), or keras.utils.image_dataset_from_directory(...)"
    )

    def check(self, module: Module) -> Iterator[Problem]:
        """Find where the list becomes an array."""
        for each in image_arrays(module):
            where = module.source.where(each.read)
            what = "the array" if each.name is None else f"`{each.name}`"
            yield Problem(each.stacked, f"{what} holds every image of the set, read in {where}")
