"""Every kind of picture comes out as a person would see it."""

import base64

import numpy as np
import pytest
import tensorflow as tf
from tests.integration import pictures

from memfit.data.decode import picture
from memfit.data.masks import mask

WEBP_PIXEL = base64.b64decode("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAgA0JaQAA3AA/vuUAAA=")


@pytest.fixture(scope="module")
def shown():
    """Decode in a graph, as pipelines do; one for each size, because tracing takes time."""
    traced = {}

    def show(contents, size, *, exact=True):
        if (size, exact) not in traced:
            given = [tf.TensorSpec([], tf.string)]
            traced[size, exact] = tf.function(
                lambda each: picture(each, size, exact=exact), autograph=False, input_signature=given
            )
        return traced[size, exact](tf.constant(contents)).numpy()

    return show


def off(one, other):
    return float(np.abs(one.astype(float) - other.astype(float)).mean())


UPRIGHT = pictures.gradient(16, 24)


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_upright_however_the_camera_was_held(shown, orientation, order):
    contents = pictures.exif(pictures.jpeg(pictures.held(UPRIGHT, orientation)), orientation, order=order)
    for exact in (True, False):
        assert off(shown(contents, (16, 24), exact=exact), UPRIGHT) < 2


def test_orientation_is_found_where_the_entries_lie_far_behind(shown):
    contents = pictures.exif(pictures.jpeg(pictures.held(UPRIGHT, 6)), 6, offset=3000)
    assert off(shown(contents, (16, 24)), UPRIGHT) < 2


def test_a_lying_picture_is_resized_to_the_wanted_size_and_not_to_its_own(shown):
    contents = pictures.exif(pictures.jpeg(pictures.held(pictures.gradient(64, 96), 8)), 8)
    assert off(shown(contents, (16, 24)), UPRIGHT) < 6


@pytest.mark.parametrize("write", [pictures.png, pictures.bmp], ids=["png", "bmp"])
def test_lossless_formats_come_out_pixel_for_pixel(shown, write):
    np.testing.assert_array_equal(shown(write(UPRIGHT), (16, 24)), UPRIGHT)


def test_an_animation_is_its_first_frame(shown):
    image = shown(pictures.gif([(255, 0, 0), (0, 255, 0)]), (2, 2))
    np.testing.assert_array_equal(image, np.full((2, 2, 3), (255, 0, 0)))


def test_sixteen_bits_become_eight(shown):
    deep = UPRIGHT.astype(np.uint16) * 257
    np.testing.assert_array_equal(shown(tf.io.encode_png(deep).numpy(), (16, 24)), UPRIGHT)


@pytest.mark.parametrize("channels", [1, 2, 4], ids=["grey", "grey with transparency", "transparency"])
def test_pictures_have_three_channels_whatever_the_file_has(shown, channels):
    pixels = np.concatenate([UPRIGHT, np.full((16, 24, 1), 255, np.uint8)], -1)
    pixels = {1: pixels[..., :1], 2: pixels[..., [0, 3]], 4: pixels}[channels]
    expected = UPRIGHT if channels == 4 else np.repeat(UPRIGHT[..., :1], 3, -1)
    np.testing.assert_array_equal(shown(pictures.png(pixels), (16, 24)), expected)


def test_four_inks_become_three_colours(shown):
    image = shown(pictures.cmyk_jpeg(255, 0, 0, 0), (8, 8))
    assert off(image, np.full((8, 8, 3), (0, 255, 255))) < 4
    assert off(shown(pictures.cmyk_jpeg(0, 0, 0, 128), (8, 8)), np.full((8, 8, 3), 127)) < 4


@pytest.mark.skipif(not hasattr(tf.io, "decode_webp"), reason="this TensorFlow does not decode WebP")
def test_webp_is_decoded_where_tensorflow_can(shown):
    assert shown(WEBP_PIXEL, (1, 1)).shape == (1, 1, 3)


def test_exact_is_what_keras_makes_of_a_file_rounded(shown):
    contents = pictures.jpeg(pictures.gradient(150, 201))
    plain = tf.image.resize(tf.io.decode_jpeg(contents, channels=3), (64, 64))
    np.testing.assert_array_equal(shown(contents, (64, 64)), np.floor(plain + 0.5))


@pytest.mark.parametrize("ratio", [2, 2.1, 2.11, 3, 4.2, 5, 8.4, 9])
def test_decoding_to_size_is_nearer_to_the_whole_picture_than_the_plain_resize(shown, ratio):
    """Seen from a resize that uses every pixel, leaving detail out early does no more harm than sampling it."""
    random, size = np.random.default_rng(0), [round(64 * ratio)] * 2
    octaves = [random.normal(size=(4 * 2**octave, 4 * 2**octave, 3)) for octave in range(7)]
    noise = sum(tf.image.resize(each, size).numpy() * 0.7**octave for octave, each in enumerate(octaves))
    pixels = np.uint8(255 * (noise - noise.min()) / np.ptp(noise))
    contents = pictures.jpeg(pixels)
    best = tf.image.resize(tf.io.decode_jpeg(contents, channels=3), (64, 64), antialias=True).numpy()
    assert off(shown(contents, (64, 64), exact=False), best) <= off(shown(contents, (64, 64)), best)


@pytest.mark.parametrize("contents", [b"", b"hello", b"\xff\xd8\xff nothing", pictures.jpeg(UPRIGHT)[:-40]])
def test_what_is_no_whole_picture_is_an_error(shown, contents):
    with pytest.raises(tf.errors.InvalidArgumentError):
        shown(contents, (16, 24))


NUMBERS = np.arange(16 * 24, dtype=np.uint8).reshape(16, 24) % 21


@pytest.fixture(scope="module")
def mask_of():
    traced = {}

    def show(contents, size=(16, 24)):
        if size not in traced:
            traced[size] = tf.function(lambda each: mask(each, size), autograph=False)
        return traced[size](tf.constant(contents)).numpy()[..., 0]

    return show


def test_masks_keep_their_class_numbers(mask_of):
    np.testing.assert_array_equal(mask_of(pictures.png(NUMBERS[..., None])), NUMBERS)


@pytest.mark.parametrize("depth", [8, 4, 2, 1])
def test_the_numbers_of_a_palette_stay_numbers_and_do_not_become_colours(mask_of, depth):
    numbers = np.minimum(NUMBERS, 2**depth - 1)
    np.testing.assert_array_equal(mask_of(pictures.palette_png(numbers, depth=depth)), numbers)


def test_resizing_a_mask_invents_no_classes(mask_of):
    resized = mask_of(pictures.png(np.where(NUMBERS > 10, 200, 3).astype(np.uint8)[..., None]), (7, 50))
    assert set(np.unique(resized)) <= {3, 200}


@pytest.mark.parametrize("pixels", [UPRIGHT, NUMBERS[..., None].astype(np.uint16)], ids=["colours", "16 bits"])
def test_a_mask_of_another_kind_is_an_error_that_says_so(mask_of, pixels):
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected one class number of 8 bits"):
        mask_of(tf.io.encode_png(pixels).numpy())
