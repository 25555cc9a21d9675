"""The bytes of a file to a mask: class numbers, resized without inventing any between them."""

from typing import Any

from memfit.framework import tensorflow

_PNG = b"\x89PNG"
# Offsets in a PNG: the header chunk is always the first and always as long.
_DEPTH, _KIND, _AFTER_KIND, _CHECK, _AFTER_CHECK = 24, 25, 26, 29, 33
_GREY, _PALETTE, _GREY_ALPHA = 0, 3, 4
_REST = 2**31 - 1
# TensorFlow turns a palette's numbers into colours. Called grey, they stay what they are; of the header's checksum,
# which is linear, the same bits change in every file (CRC-32 of a header with kind 3 against kind 0).
_CHECK_CHANGE = (0x12, 0xB5, 0xAF, 0xEE)
_OTHER_THAN_NUMBERS = "this mask has colours, or 16 bits; expected one class number of 8 bits for each pixel"


def mask(contents: Any, size: tuple[int, int]) -> Any:
    """Decode and resize one mask, in a graph: uint8 class numbers of shape (height, width, 1)."""
    tf = tensorflow()
    image = tf.cond(
        tf.strings.substr(contents, 0, 4) == _PNG,
        lambda: _png(contents),
        lambda: tf.io.decode_image(contents, expand_animations=False),
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.shape(image)[-1] == 1, [_OTHER_THAN_NUMBERS])]):
        image = tf.ensure_shape(tf.identity(image), (None, None, 1))
    return tf.image.resize(image, size, method="nearest")


def _png(contents: Any) -> Any:
    tf = tensorflow()
    depth, kind = _byte(contents, _DEPTH), _byte(contents, _KIND)
    numbers = tf.logical_and(depth <= 8, tf.reduce_any(kind == tf.constant([_GREY, _PALETTE, _GREY_ALPHA])))
    with tf.control_dependencies([tf.debugging.Assert(numbers, [_OTHER_THAN_NUMBERS])]):
        contents = tf.cond(kind == _PALETTE, lambda: _called_grey(contents), lambda: contents)
    image = tf.io.decode_png(contents, channels=1)
    # Grey of fewer bits is stretched to 0..255; class numbers are counted.
    step = tf.cast(255 // (tf.bitwise.left_shift(1, depth) - 1), tf.uint8)
    return tf.cond(depth < 8, lambda: image // step, lambda: image)


def _byte(contents: Any, at: int) -> Any:
    tf = tensorflow()
    return tf.cast(tf.io.decode_raw(tf.strings.substr(contents, at, 1), tf.uint8)[0], tf.int32)


def _called_grey(contents: Any) -> Any:
    tf = tensorflow()
    letters = tf.constant([bytes([code]) for code in range(256)])
    check = tf.io.decode_raw(tf.strings.substr(contents, _CHECK, 4), tf.uint8)
    changed = tf.bitwise.bitwise_xor(check, tf.constant(_CHECK_CHANGE, tf.uint8))
    return tf.strings.join(
        [
            tf.strings.substr(contents, 0, _KIND),
            b"\x00",
            tf.strings.substr(contents, _AFTER_KIND, _CHECK - _AFTER_KIND),
            tf.strings.reduce_join(tf.gather(letters, tf.cast(changed, tf.int32))),
            tf.strings.substr(contents, _AFTER_CHECK, _REST),
        ]
    )
