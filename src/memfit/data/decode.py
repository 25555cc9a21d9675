"""The bytes of a file to a picture of the wanted size: uint8, upright, three channels.

A JPEG is decoded to a half, a quarter or an eighth right away where that is still at least the wanted size: its decoder
leaves out the finest detail, which the resize would fold into noise. `exact=True` decodes in full, as Keras does.
"""

from typing import Any

from memfit.data.orientation import LYING, orientation, upright
from memfit.framework import tensorflow

CHANNELS = 3
_RATIOS = (1, 2, 4, 8)
# At exactly half, the plain resize averages all pixels and is the better one; from 2.05 on (measured) it is the worse.
_MARGIN = (20, 21)
_JPEG = b"\xff\xd8"


def picture(contents: Any, size: tuple[int, int], *, exact: bool) -> Any:
    """Decode and resize one picture, in a graph.

    Args:
        contents: The file's bytes.
        size: Height and width to resize to, as Keras does: bilinear, the proportions are not kept.
        exact: Whether JPEGs are decoded in full.
    """
    tf = tensorflow()
    image, way = _decoded(contents, size, exact=exact)
    resized = _rounded(tf.image.resize(image, _lying_or_not(size, way)))
    return tf.ensure_shape(upright(resized, way), (*size, CHANNELS))


def decoded_shape(contents: Any, size: tuple[int, int], *, exact: bool) -> Any:
    """Height, width and channels of a picture as it is decoded, before it is resized."""
    return tensorflow().shape(_decoded(contents, size, exact=exact)[0])


def _decoded(contents: Any, size: tuple[int, int], *, exact: bool) -> tuple[Any, Any]:
    """A picture, and the way up it is to be turned."""
    tf = tensorflow()
    is_jpeg = tf.strings.substr(contents, 0, 2) == _JPEG
    way = orientation(contents, is_jpeg)
    if exact:
        return _whole(contents), way

    def best() -> Any:
        return _best_ratio(tf.io.extract_jpeg_shape(contents)[:2], _lying_or_not(size, way))

    # Branches are functions, which TensorFlow sets up again for each epoch, and cost time: few, and flat.
    chosen = tf.cond(is_jpeg, best, lambda: tf.constant(0))
    smaller = [_decoder(contents, ratio) for ratio in _RATIOS[1:]]
    return tf.switch_case(chosen, [lambda: _whole(contents), *smaller]), way


def _lying_or_not(size: tuple[int, int], way: Any) -> Any:
    """The size to resize to: what lies on its side is resized lying, and turned when it is small."""
    tf = tensorflow()
    return tf.where(way >= LYING, tf.constant(size[::-1]), tf.constant(size))


def _best_ratio(there: Any, wanted: Any) -> Any:
    """The place of the largest ratio at which a picture is as good as the whole one for a resize to that size."""
    tf = tensorflow()
    ratios = tf.constant(_RATIOS)[:, None]
    enough = there * _MARGIN[0] >= wanted * (ratios * _MARGIN[1])
    # Sides are rounded up to whole pixels: what that adds may shift the picture's far edge by a quarter of a pixel.
    aligned = tf.math.floormod(-there, ratios) * wanted * 4 <= there
    good = tf.reduce_all(tf.logical_and(enough, aligned), axis=1)
    return tf.reduce_max(tf.where(good, tf.range(len(_RATIOS)), 0))


def _decoder(contents: Any, ratio: int) -> Any:
    return lambda: tensorflow().io.decode_jpeg(contents, channels=CHANNELS, ratio=ratio)


def _whole(contents: Any) -> Any:
    # 16 bits become 8, grey becomes three channels, transparency is dropped, and an animation is its first frame.
    image = tensorflow().io.decode_image(contents, channels=CHANNELS, expand_animations=False)
    return tensorflow().ensure_shape(image, (None, None, CHANNELS))


def _rounded(image: Any) -> Any:
    """Floats from 0 to 255 to uint8, rounded: quantizing does both in one pass and takes half the time of two."""
    tf = tensorflow()
    quantized = tf.raw_ops.QuantizeV2(input=image, min_range=0.0, max_range=255.0, T=tf.quint8, mode="MIN_COMBINED")
    return tf.bitcast(quantized.output, tf.uint8)
