"""A budget for a pipeline the user already has, and pipelines on tf.data service."""

import numpy as np
import pytest
import tensorflow as tf
from tests.integration import pictures

import memfit
from memfit.errors import BudgetTooSmallError, InputError
from memfit.units import MIB


def pictures_of(count=100, size=64):
    return tf.data.Dataset.range(count).map(lambda index: (tf.zeros([size, size, 3], tf.uint8), index))


def test_the_elements_stay_and_the_autotuner_gets_the_budget():
    plain = pictures_of(10).batch(4)
    bounded = memfit.data.bounded(plain, ram_budget="64MiB")
    assert len(bounded) == 3
    assert [labels.tolist() for _, labels in bounded.as_numpy_iterator()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert bounded.options().autotune.ram_budget <= 64 * MIB
    bounds = memfit.data.layout(bounded)
    assert bounds.element_bytes == 4 * (64 * 64 * 3 + 8)


def test_what_the_pipeline_holds_is_counted(capsys):
    each = 64 * 64 * 3 + 8
    bounded = memfit.data.bounded(pictures_of().cache().shuffle(50).batch(10).prefetch(3), ram_budget="64MiB")
    assert [(stage.what, stage.held_bytes) for stage in memfit.data.layout(bounded).stages] == [
        ("prefetch(3)", 3 * 10 * each),
        ("shuffle(50)", 50 * each),
        ("cache()", 100 * each),
    ]
    memfit.data.explain(bounded)
    assert "shuffle(50)" in capsys.readouterr().out


def test_a_pipeline_that_holds_more_than_the_budget_is_refused_with_what_holds_it():
    with pytest.raises(BudgetTooSmallError, match=r"does not fit ram_budget=1 MiB: shuffle\(100\) holds 1\.17 MiB"):
        memfit.data.bounded(pictures_of().shuffle(100).batch(10), ram_budget="1MiB")
    with pytest.raises(InputError, match=r"expected a tf\.data\.Dataset"):
        memfit.data.bounded([1, 2], ram_budget="1MiB")


def test_a_cache_in_a_file_is_not_memory_and_is_not_half_written(tmp_path):
    ragged = tf.data.Dataset.range(4).map(lambda index: tf.zeros(tf.stack([index + 1]), tf.uint8))
    bounded = memfit.data.bounded(ragged.cache(str(tmp_path / "cache")), ram_budget="1MiB")
    assert memfit.data.layout(bounded).stages == ()
    for _ in range(2):
        assert [len(each) for each in bounded.as_numpy_iterator()] == [1, 2, 3, 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pictures.folder(tmp_path_factory.mktemp("photos"), count=9)


@pytest.mark.slow
def test_two_worker_processes_hand_out_every_sample_once(folder):
    dataset = memfit.data.image_folder(
        folder,
        image_size=16,
        batch_size=2,
        seed=0,
        augment=lambda image, seed: tf.image.stateless_random_hue(image, 0.1, seed),
    )
    served = memfit.data.serve(dataset, workers=2)
    for _ in range(2):
        labels = np.concatenate([labels for _, labels in served.as_numpy_iterator()])
        assert sorted(labels.tolist()) == [0] * 5 + [1] * 4
    assert served.class_names == ["class0", "class1"]
    assert len(memfit.data.layout(served).decisions) == 1


@pytest.mark.slow
def test_a_cluster_that_runs_already_is_used_by_its_address():
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=100))
    served = memfit.data.serve(tf.data.Dataset.range(10), address=address)
    assert sorted(served.as_numpy_iterator()) == list(range(10))
    del worker


def test_python_functions_are_refused_because_other_processes_do_not_have_them(folder):
    def dimmed(image, rng):
        return image // 2

    dataset = memfit.data.image_folder(folder, image_size=16, augment=dimmed, seed=0)
    with pytest.raises(InputError, match=r"augment 'dimmed' is a Python function, .* tf\.data service"):
        memfit.data.serve(dataset)
    plain = tf.data.Dataset.range(3).map(lambda index: tf.numpy_function(lambda each: each, [index], tf.int64))
    with pytest.raises(InputError, match="the pipeline calls a Python function"):
        memfit.data.serve(plain)
    with pytest.raises(InputError, match=r"Serve what memfit\.data returned"):
        memfit.data.serve(memfit.data.image_folder(folder, image_size=16).map(lambda images, labels: images))
    with pytest.raises(InputError, match="workers=0"):
        memfit.data.serve(plain, workers=0)
