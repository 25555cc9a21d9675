"""Augmentation of every kind: what a function is given, that seeds reach it, and what is said when it is wrong."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.integration import pictures

import memfit
from memfit.data.augment import understood
from memfit.errors import InputError

SIZE = (16, 16)
IMAGE = pictures.gradient(*SIZE)
LABEL = np.int32(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pictures.folder(tmp_path_factory.mktemp("photos"), count=6)


def two_epochs(folder, augment, seed=1, **settings):
    """What comes out, in the order of the files' colours, which no augmentation here changes."""
    dataset = memfit.data.image_folder(
        folder, image_size=SIZE, batch_size=4, ram_budget="1GiB", augment=augment, seed=seed, **settings
    )
    return [np.concatenate([images for images, _ in dataset.as_numpy_iterator()]) for _ in range(2)]


def flipped_with_seed(image, seed):
    return tf.image.stateless_random_flip_left_right(image, seed)


def flipped_with_state(image):
    if tf.random.uniform([]) < 0.5:
        image = image[:, ::-1]
    return tf.image.random_flip_up_down(image)


def flipped_by_numpy(image):
    return image[:, ::-1].copy() if np.random.rand() < 0.5 else image


def flipped_by_python(image, label):
    return (np.flipud(image) if random.random() < 0.5 else np.asarray(image)), label


def brightened_with_rng(image, rng):
    return np.clip(image + rng.integers(-30, 30), 0, 255).astype(np.uint8)


class Albumentations:
    """What Albumentations' `Compose` looks like from outside."""

    transforms = ()

    def __init__(self):
        self.generator = np.random.default_rng()

    def set_random_seed(self, seed):
        self.generator = np.random.default_rng(seed)

    def __call__(self, *args, force_apply=False, **data):
        if args:
            raise KeyError("You have to pass data to augmentations as named arguments")
        return {"image": np.roll(data["image"], self.generator.integers(16), axis=1)}


@pytest.mark.parametrize(
    ("augment", "kind"),
    [
        (flipped_with_seed, "tensorflow"),
        (flipped_with_state, "tensorflow"),
        (keras.Sequential([keras.layers.RandomFlip(), keras.layers.RandomTranslation(0.2, 0.2)]), "tensorflow"),
        (flipped_by_numpy, "python"),
        (flipped_by_python, "python"),
        (brightened_with_rng, "python"),
        (Albumentations(), "python"),
    ],
    ids=["stateless", "stateful", "keras", "numpy", "python", "rng", "albumentations"],
)
def test_the_same_seed_gives_the_same_augmentation_and_each_epoch_its_own(folder, augment, kind):
    assert understood(augment, (IMAGE, LABEL), seed=1, pairs=False).kind == kind
    first, second = two_epochs(folder, augment, shuffle=False)
    again, _ = two_epochs(folder, augment, shuffle=False)
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    assert first.dtype == np.uint8


def test_augmentation_does_not_depend_on_how_samples_are_batched(folder):
    def epoch(batch_size):
        dataset = memfit.data.image_folder(
            folder, image_size=SIZE, batch_size=batch_size, augment=brightened_with_rng, seed=4, shuffle=False
        )
        return np.concatenate([images for images, _ in dataset.as_numpy_iterator()])

    np.testing.assert_array_equal(epoch(2), epoch(5))


def test_validation_is_not_augmented(folder):
    def black(image):
        return tf.zeros_like(image)

    train, validation = memfit.data.image_folder(
        folder, image_size=SIZE, batch_size=4, validation_split=0.5, augment=black, seed=0
    )
    assert all((images == 0).all() for images, _ in train.as_numpy_iterator())
    assert all((images != 0).any() for images, _ in validation.as_numpy_iterator())


def test_the_process_keeps_its_own_random_numbers(folder):
    random.seed(7)
    np.random.seed(7)
    expected = random.random(), np.random.rand()
    random.seed(7)
    np.random.seed(7)
    two_epochs(folder, flipped_by_numpy)
    assert (random.random(), np.random.rand()) == expected


def cropped(image):
    return image[2:]


def as_floats(image):
    return tf.cast(image, tf.float32) / 255


def broken(image):
    raise ValueError("out of luck")


def of_three(image, label, weight):
    return image, label, weight


def one_of_two(image, label):
    return image


def with_a_generator(image, generator=tf.random.Generator.from_seed(1)):  # noqa: B008
    return image + tf.cast(generator.uniform([], maxval=2, dtype=tf.int32), tf.uint8)


@pytest.mark.parametrize(
    ("augment", "said"),
    [
        (cropped, r"'cropped' makes uint8 of shape \(14, 16, 3\) of uint8 of shape \(16, 16, 3\)"),
        (as_floats, r"'as_floats' makes float32 .*end with tf\.cast"),
        (broken, "'broken' fails on an image of .*ValueError: out of luck"),
        (of_three, "'of_three' asks for image, label, weight"),
        (one_of_two, "'one_of_two' takes 2 parts of a sample and returns 1"),
        (with_a_generator, "'with_a_generator' draws random numbers .* that seed= does not reach"),
        ("flip", "augment='flip' is not a function"),
    ],
)
def test_a_wrong_augmentation_is_refused_before_training(augment, said):
    with pytest.raises(InputError, match=said):
        understood(augment, (IMAGE, LABEL), seed=1, pairs=False)


def test_an_augmentation_that_fails_on_a_file_names_it(folder):
    calls = []

    def unlucky(image, rng):
        calls.append(1)
        if len(calls) > 3:
            raise ValueError("out of luck")
        return image

    with pytest.raises(tf.errors.OpError, match=r"augment 'unlucky' fails on .*\.jpg: ValueError: out of luck"):
        two_epochs(folder, unlucky)
