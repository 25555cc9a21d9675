"""Files that turn out broken while they are read: left out from then on, named, and counted."""

from collections.abc import Sequence
from typing import Any

from memfit.data.facts import Broken
from memfit.framework import tensorflow

_SKIPPED = "memfit.data skips a file that cannot be read:"
_RAISED = "memfit.data cannot read"
_NONE_LEFT = 'memfit.data: no file of a batch can be read. Remove them, or see on_error="raise" for why:'


class BrokenFiles:
    """Which samples of a split cannot be read."""

    def __init__(self, paths: Any, *, skip: bool) -> None:
        """`paths` is a tensor with a row of paths for each sample."""
        tf = tensorflow()
        self._paths = paths
        self._skip = skip
        with tf.device("CPU:0"):
            self._marks = tf.Variable(tf.zeros([len(paths)], tf.bool), trainable=False, name="broken")

    def usable(self, indices: Any) -> Any:
        """Those that are not known to be broken."""
        tf = tensorflow()
        if not self._skip:
            return indices
        kept = tf.boolean_mask(indices, tf.logical_not(tf.gather(self._marks, indices)))
        # A model that is fed no sample at all computes nonsense.
        some = tf.debugging.Assert(tf.size(kept) > 0, [_NONE_LEFT, self._named(indices)])
        with tf.control_dependencies([some]):
            return tf.identity(kept)

    def compared(self, wanted: Any, got: Any) -> Any:
        """Note which of the wanted ones did not come, and return those that did."""
        tf = tensorflow()

        def noted() -> Any:
            came = tf.reduce_any(wanted[:, None] == got[None, :], axis=1)
            missing = tf.boolean_mask(wanted, tf.logical_not(came))
            names = self._named(missing)
            if not self._skip:
                done: list[Any] = [tf.debugging.Assert(False, [_RAISED, names])]
            else:
                marked = tf.raw_ops.ResourceScatterUpdate(
                    resource=self._marks.handle, indices=missing, updates=tf.ones_like(missing, tf.bool)
                )
                some = tf.debugging.Assert(tf.size(got) > 0, [_NONE_LEFT, names])
                done = [marked, some, tf.print(_SKIPPED, names)]
            with tf.control_dependencies(done):
                return tf.identity(got)

        return tf.cond(tf.size(got) == tf.size(wanted), lambda: got, noted)

    def _named(self, indices: Any) -> Any:
        tf = tensorflow()
        samples = tf.strings.reduce_join(tf.gather(self._paths, indices), axis=-1, separator=" + ")
        return tf.strings.reduce_join(samples, separator=", ")

    def found(self) -> tuple[Broken, ...]:
        """Those that were found so far, each with what TensorFlow says about it."""
        tf = tensorflow()
        rows = tf.boolean_mask(self._paths, self._marks).numpy().tolist()
        samples = [[path.decode(errors="replace") for path in row] for row in rows]
        return tuple(Broken(" + ".join(files), _complaints(files)) for files in samples)


def _complaints(files: Sequence[str]) -> str:
    """What is wrong with one of a sample's files."""
    found = [complaint for path in files if (complaint := _complaint(path)) is not None]
    return found[0] if found else "it does not become a picture of the expected kind"


def _complaint(path: str) -> str | None:
    """What TensorFlow says about a file, in one line; `None` where it can decode it."""
    tf = tensorflow()
    try:
        contents = tf.io.read_file(path)
        tf.io.decode_image(contents, expand_animations=False)
    except tf.errors.OpError as error:
        return said(error)
    return None


def said(error: Exception) -> str:
    """The words of a TensorFlow error without where in the graph it was."""
    # In a graph, a long account of where it was comes before the words, and the node's name behind them.
    words = str(getattr(error, "message", error)).partition("\n\t [[")[0].strip()
    return words.splitlines()[-1].split("}} ")[-1].partition(" [Op:")[0].strip() if words else type(error).__name__
