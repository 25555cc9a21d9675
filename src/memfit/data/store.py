"""Caches in host memory that are read by number, so that every epoch can have its own order without a second copy.

`Dataset.cache()` gives back what it holds in the order it came; shuffling that takes a buffer of decoded pictures. Here
a sample's number is its place: a buffer of bytes on the CPU, filled in the first epoch and gathered from afterwards.
Pages that are not filled yet are not there yet. A mark is set after the bytes are in place: a reader never sees half.
"""

from collections.abc import Callable, Sequence
from typing import Any

from memfit.framework import tensorflow


class DecodedStore:
    """Pictures as they are fed, for the first `count` samples."""

    def __init__(self, count: int, shapes: Sequence[tuple[int, ...]]) -> None:
        tf = tensorflow()
        self._count = count
        with tf.device("CPU:0"):
            self._parts = [_buffer((count, *shape)) for shape in shapes]
            self._filled = tf.Variable(tf.zeros([count], tf.bool), trainable=False, name="filled")

    def holds_all(self, indices: Any) -> Any:
        """Whether every one of these samples is here."""
        tf = tensorflow()
        here = indices < self._count
        return tf.logical_and(
            tf.reduce_all(here), tf.reduce_all(tf.gather(self._filled, tf.where(here, indices, tf.zeros_like(indices))))
        )

    def read(self, indices: Any) -> tuple[Any, ...]:
        """The samples of these numbers."""
        return tuple(tensorflow().gather(part, indices) for part in self._parts)

    def through(self, index: Any, make: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """One sample from here, or made and kept."""
        tf = tensorflow()

        def made() -> tuple[Any, ...]:
            images = make()
            return tuple(tf.cond(index < self._count, lambda: self.kept(index, images), lambda: images))

        return tuple(tf.cond(self.holds_all(index[None]), lambda: self.read(index), made))

    def kept(self, index: Any, images: tuple[Any, ...]) -> tuple[Any, ...]:
        """Keep one sample, and return it."""
        tf = tensorflow()
        writes = [_write(part, index, image) for part, image in zip(self._parts, images, strict=True)]
        with tf.control_dependencies(writes):
            mark = _write(self._filled, index, tf.constant(True))
        with tf.control_dependencies([mark]):
            return tuple(tf.identity(image) for image in images)


class EncodedStore:
    """The bytes of files, until they take `limit` bytes together."""

    def __init__(self, count: int, files: int, limit: int) -> None:
        tf = tensorflow()
        self._limit = limit
        with tf.device("CPU:0"):
            self._contents = tf.Variable(tf.fill([count, files], ""), trainable=False, name="encoded")
            self._used = tf.Variable(tf.zeros([], tf.int64), trainable=False, name="encoded_bytes")

    def through(self, index: Any, read: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The bytes of one sample's files from here, or read and kept."""
        tf = tensorflow()
        here = tuple(tf.unstack(tf.gather(self._contents, index)))

        def fetched() -> tuple[Any, ...]:
            contents = read()
            size = tf.cast(tf.add_n([tf.strings.length(each) for each in contents]), tf.int64)
            room = self._used + size <= self._limit
            return tuple(tf.cond(room, lambda: self._kept(index, contents, size), lambda: contents))

        return tuple(tf.cond(tf.strings.length(here[0]) > 0, lambda: here, fetched))

    def _kept(self, index: Any, contents: tuple[Any, ...], size: Any) -> tuple[Any, ...]:
        tf = tensorflow()
        used = self._used.assign_add(size, read_value=False)
        with tf.control_dependencies([used, _write(self._contents, index, tf.stack(contents))]):
            return tuple(tf.identity(each) for each in contents)


def _buffer(shape: tuple[int, ...]) -> Any:
    tf = tensorflow()
    # Not set to zero: the system hands pages out when they are written.
    return tf.Variable(
        lambda: tf.raw_ops.Empty(shape=shape, dtype=tf.uint8, init=False), trainable=False, name="decoded"
    )


def _write(variable: Any, index: Any, value: Any) -> Any:
    """Write one row. Rows of numbers are written without a lock: no two writers have the same one."""
    return tensorflow().raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=index, updates=value)
