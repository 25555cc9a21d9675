"""Data sets from pictures: what comes out, in which order, from which cache, and what happens with broken files."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.integration import pictures

import memfit
from memfit.data import building
from memfit.errors import BudgetTooSmallError, DataWarning, InputError

SIZE = (16, 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pictures.folder(tmp_path_factory.mktemp("photos"), count=10)


def made(folder, **settings):
    return memfit.data.image_folder(folder, **{"image_size": SIZE, "batch_size": 4, "ram_budget": "1GiB", **settings})


def epoch(dataset):
    """Images and labels of one pass, put together."""
    images, labels = zip(*dataset.as_numpy_iterator(), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def in_order_of_content(images):
    return images[np.lexsort(images.reshape(len(images), -1).T)]


@pytest.fixture
def force_cache(monkeypatch):
    """Have a cache decided that small test data would never need."""
    decide = building.decide

    def force(cache, cached):
        def forced(*args, **kwargs):
            layout = decide(*args, **kwargs)
            decisions = [
                replace(each, cache=cache, cached_samples=cached, cache_bytes=10**6) for each in layout.decisions
            ]
            return replace(layout, decisions=tuple(decisions))

        monkeypatch.setattr(building, "decide", forced)

    return force


CACHES = {"decoded": 10, "encoded": 10, "none": 0, "disk": 10}


def test_it_is_an_ordinary_data_set_of_uint8_with_classes_and_a_length(folder):
    train, validation = made(folder, validation_split=0.2, seed=0)
    assert isinstance(train, tf.data.Dataset)
    assert (len(train), len(validation)) == (2, 1)
    images, labels = train.element_spec
    assert (images.shape.as_list(), images.dtype, labels.dtype) == ([None, 16, 16, 3], tf.uint8, tf.int32)
    assert train.class_names == ["class0", "class1"]
    assert sorted(train.file_paths + validation.file_paths) == sorted(str(path) for path in folder.rglob("*.jpg"))


@pytest.mark.parametrize("cache", CACHES)
def test_every_epoch_has_each_sample_once_in_another_order_whatever_the_cache(folder, cache, force_cache, tmp_path):
    expected, labels = epoch(made(folder, shuffle=False))
    force_cache(cache, CACHES[cache])
    dataset = made(folder, seed=3, cache_dir=tmp_path)
    orders = []
    for _ in range(3):
        images, its_labels = epoch(dataset)
        np.testing.assert_array_equal(in_order_of_content(images), in_order_of_content(expected))
        places = [np.flatnonzero((expected == image).all((1, 2, 3)))[0] for image in images]
        np.testing.assert_array_equal(labels[places], its_labels)
        orders.append(places)
    assert orders[0] != orders[1] != orders[2]


def test_a_cache_may_hold_a_part(folder, force_cache):
    expected, _ = epoch(made(folder, shuffle=False))
    force_cache("decoded", 6)
    dataset = made(folder, shuffle=False)
    for _ in range(2):
        np.testing.assert_array_equal(epoch(dataset)[0], expected)


def test_what_is_cached_is_not_read_again(tmp_path):
    pictures.folder(tmp_path, count=6)
    dataset = made(tmp_path, seed=0)
    first, _ = epoch(dataset)
    for path in tmp_path.rglob("*.jpg"):
        path.unlink()
    second, _ = epoch(dataset)
    np.testing.assert_array_equal(in_order_of_content(first), in_order_of_content(second))


def test_the_same_seed_gives_the_same_epochs(folder):
    one, other = (made(folder, seed=5) for _ in range(2))
    for _ in range(2):
        np.testing.assert_array_equal(epoch(one)[0], epoch(other)[0])
    assert (epoch(one)[0] != epoch(made(folder, seed=6))[0]).any()


def test_half_an_epoch_does_not_spoil_the_cache(folder):
    dataset = made(folder, seed=0)
    for _ in dataset.take(1):
        pass
    expected, _ = epoch(made(folder, shuffle=False))
    for _ in range(2):
        np.testing.assert_array_equal(in_order_of_content(epoch(dataset)[0]), in_order_of_content(expected))


def test_fit_takes_it_as_it_is(folder):
    train, validation = made(folder, validation_split=0.3, seed=0)
    for first in ([keras.layers.Rescaling(1 / 255)], [keras.Input((*SIZE, 3)), keras.layers.Conv2D(2, 3)]):
        model = keras.Sequential([*first, keras.layers.Flatten(), keras.layers.Dense(2)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        history = model.fit(train, validation_data=validation, epochs=2, verbose=0, shuffle=False)
        assert len(history.history["val_loss"]) == 2


def test_lists_with_labels_of_any_shape_and_without(folder):
    paths = sorted(folder.rglob("*.jpg"))
    rows = np.arange(20, dtype="float32").reshape(10, 2)
    images, labels = epoch(memfit.data.images(paths, rows, image_size=SIZE, batch_size=3, shuffle=False))
    np.testing.assert_array_equal(labels, rows)
    alone = memfit.data.images(paths, image_size=SIZE, batch_size=3, shuffle=False)
    np.testing.assert_array_equal(np.concatenate(list(alone.as_numpy_iterator())), images)


def test_masks_come_with_their_pictures_and_are_augmented_with_them(tmp_path):
    paths, masks = [], []
    for index in range(6):
        paths.append(tmp_path / f"{index}.png")
        masks.append(tmp_path / f"{index}-mask.png")
        paths[-1].write_bytes(pictures.png(pictures.gradient(8, 8, seed=index)))
        masks[-1].write_bytes(pictures.palette_png(np.full((8, 8), index)))

    def mirrored(image, mask, seed):
        return tf.cond(
            tf.random.stateless_uniform([], seed) < 0.5, lambda: (image[:, ::-1], mask + 100), lambda: (image, mask)
        )

    dataset = memfit.data.images(paths, masks=masks, image_size=8, batch_size=3, augment=mirrored, seed=1)
    plain = [pictures.gradient(8, 8, seed=index) for index in range(6)]
    turned = set()
    for _ in range(3):
        for image, mask in dataset.unbatch().as_numpy_iterator():
            assert mask.shape == (8, 8, 1)
            number, mirror = int(mask[0, 0, 0]) % 100, bool(mask[0, 0, 0] >= 100)
            np.testing.assert_array_equal(image, plain[number][:, ::-1] if mirror else plain[number])
            turned.add(mirror)
    assert turned == {True, False}


BROKEN = {"cut.jpg": pictures.jpeg(pictures.gradient(24, 32))[:-60], "words.png": b"not a picture"}


@pytest.fixture
def damaged(tmp_path):
    pictures.folder(tmp_path / "photos", count=10)
    for name, contents in BROKEN.items():
        (tmp_path / "photos" / "class0" / name).write_bytes(contents)
    return tmp_path / "photos"


def names(broken):
    return sorted(each.path.rpartition("/")[2] for each in broken)


def test_broken_files_are_left_out_counted_and_listed(damaged):
    with pytest.warns(DataWarning, match=r"2 files are left out: .*cut\.jpg \(.*JPEG.*words\.png \(Unknown image"):
        dataset = made(damaged, seed=0)
    assert len(epoch(dataset)[0]) == 10
    assert names(memfit.data.skipped(dataset)) == ["cut.jpg", "words.png"]


@pytest.mark.parametrize("cache", CACHES)
def test_files_that_turn_out_broken_make_their_batch_smaller(damaged, cache, force_cache, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr("memfit.data.sampling.SAMPLE", 1)
    force_cache(cache, 12 if cache != "none" else 0)
    if cache == "disk":
        with pytest.warns(DataWarning, match="2 files are left out"):
            dataset = made(damaged, seed=2, cache_dir=tmp_path / "cache")
    else:
        dataset = made(damaged, seed=2)
        assert len(dataset) == 3
    for _ in range(3):
        assert len(epoch(dataset)[0]) == 10
    if cache != "disk":
        assert names(memfit.data.skipped(dataset)) == ["cut.jpg", "words.png"]
        assert capfd.readouterr().err.count("skips a file that cannot be read") <= 4


def test_a_broken_file_stops_the_build_when_that_is_asked_for(damaged):
    with pytest.raises(InputError, match=r'cannot read .*cut\.jpg: .*JPEG.*on_error="skip"'):
        made(damaged, seed=0, on_error="raise")


def test_a_broken_file_stops_the_epoch_when_that_is_asked_for(damaged, monkeypatch):
    monkeypatch.setattr("memfit.data.sampling.SAMPLE", 1)
    dataset = made(damaged, seed=2, shuffle=False, on_error="raise")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"memfit\.data cannot read.*cut\.jpg"):
        epoch(dataset)


def test_a_batch_without_any_good_file_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("memfit.data.sampling.SAMPLE", 1)
    pictures.folder(tmp_path, count=4)
    for at in range(4):
        (tmp_path / "class0" / f"z{at}.jpg").write_bytes(b"no")
    dataset = made(tmp_path, seed=2, shuffle=False, batch_size=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no file of a batch can be read.*z0\.jpg"):
        epoch(dataset)


def test_a_folder_of_broken_files_is_refused(tmp_path):
    (tmp_path / "class0").mkdir()
    (tmp_path / "class0" / "a.jpg").write_bytes(b"no")
    with pytest.raises(InputError, match=r"none of 1 files can be read; the first is .*a\.jpg"):
        made(tmp_path)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"image_size": (16, 0)}, InputError, "image_size"),
        ({"image_size": (16, 16, 3)}, InputError, "height and width"),
        ({"batch_size": 0}, InputError, "batch_size=0"),
        ({"on_error": "ignore"}, InputError, 'neither "skip" nor "raise"'),
        ({"ram_budget": "lots"}, InputError, "ram_budget 'lots' is not a usable memory size"),
        ({"ram_budget": "1MiB"}, BudgetTooSmallError, "ram_budget=1 MiB is less than the pipeline needs"),
        ({"validation_split": 1.0}, InputError, "validation_split"),
    ],
)
def test_wrong_settings_are_refused_with_what_would_be_right(folder, settings, error, said):
    with pytest.raises(error, match=said):
        made(folder, **settings)


def test_lists_of_other_lengths_are_refused(folder):
    paths = sorted(folder.rglob("*.jpg"))
    with pytest.raises(InputError, match="10 paths but 9 labels"):
        memfit.data.images(paths, range(9), image_size=SIZE)
    with pytest.raises(InputError, match="10 paths but 2 masks"):
        memfit.data.images(paths, masks=paths[:2], image_size=SIZE)
    with pytest.raises(InputError, match="is one path; expected a list"):
        memfit.data.images(str(folder), image_size=SIZE)
    with pytest.raises(InputError, match="labels and masks were both given"):
        memfit.data.images(paths, range(10), masks=paths, image_size=SIZE)
    with pytest.raises(InputError, match="paths is empty"):
        memfit.data.images([], image_size=SIZE)
    with pytest.raises(InputError, match="labels differ in shape"):
        memfit.data.images(paths[:2], [[1], [1, 2]], image_size=SIZE)


def test_a_single_class_is_said(tmp_path):
    pictures.folder(tmp_path, count=2, classes=1)
    with pytest.warns(DataWarning, match="there is a single class, 'class0'"):
        made(tmp_path)


def test_explain_prints_what_was_decided_and_why(folder, capsys):
    train, _ = made(folder, validation_split=0.2, seed=0)
    memfit.data.explain(train.map(lambda images, labels: (images, labels)))
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("of 1 GiB of host memory", "decoded, in memory", "all of them fit", "shuffled anew each epoch"):
        assert part in shown
    layout = memfit.data.layout(train)
    assert layout.ram_bytes <= layout.ram_budget == 2**30
    with pytest.raises(InputError, match=r"was not made by memfit\.data"):
        memfit.data.explain(tf.data.Dataset.range(3))


def test_the_budget_is_given_to_the_autotuner(folder):
    options = made(folder).options()
    assert options.autotune.ram_budget == 2**30
    assert options.autotune.initial_parallelism == 1
