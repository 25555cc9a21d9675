"""A cache on disk is used when it is whole, and made again when it is not."""

import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.integration import pictures

import memfit
from memfit.data import building, disk
from memfit.errors import InputError


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    """Make data sets whose cache is on disk, however small they are."""
    decide = building.decide

    def decided(*args, **kwargs):
        layout = decide(*args, **kwargs)
        return replace(layout, decisions=tuple(replace(each, cache="disk") for each in layout.decisions))

    monkeypatch.setattr(building, "decide", decided)
    pictures.folder(tmp_path / "photos", count=6)

    def make(**settings):
        return memfit.data.image_folder(
            tmp_path / "photos",
            **{"image_size": 16, "batch_size": 4, "shuffle": False, "cache_dir": tmp_path / "cache", **settings},
        )

    return make


def images(dataset):
    return np.concatenate([batch for batch, _ in dataset.as_numpy_iterator()])


def caches(tmp_path):
    return sorted((tmp_path / "cache").iterdir())


def test_a_cache_is_used_again_by_the_next_run(on_disk, tmp_path, monkeypatch):
    first = images(on_disk())
    monkeypatch.setattr(disk, "filled", lambda *args, **kwargs: pytest.fail("it was made again"))
    np.testing.assert_array_equal(images(on_disk()), first)
    assert len(caches(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["cut", "unmarked", "nonsense"])
def test_a_cache_that_is_not_whole_is_made_again(on_disk, tmp_path, damage):
    first = images(on_disk())
    (cache,) = caches(tmp_path)
    if damage == "cut":
        with (cache / "samples").open("r+b") as file:
            file.truncate(1000)
    elif damage == "unmarked":
        (cache / "complete.json").unlink()
    else:
        (cache / "complete.json").write_text("[1, 2")
    np.testing.assert_array_equal(images(on_disk()), first)


def test_other_pictures_or_sizes_get_a_cache_of_their_own(on_disk, tmp_path):
    on_disk()
    on_disk(image_size=12)
    path = tmp_path / "photos" / "class0" / "000.jpg"
    path.write_bytes(pictures.jpeg(pictures.gradient(24, 32, seed=99)))
    changed = images(on_disk())
    assert len(caches(tmp_path)) == 3
    assert abs(int(changed[0, 0, 0, 2]) - (40 + 37 * 99 % 200)) < 6


def test_a_cache_dir_that_cannot_be_written_is_an_error(on_disk, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written.*Name another cache_dir"):
        on_disk(cache_dir=tmp_path / "file")


def test_a_disk_without_room_is_said_before_it_is_full(on_disk, monkeypatch):
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(InputError, match=r"does not fit on the disk .* 10 B free"):
        on_disk()


@pytest.mark.slow
def test_a_process_that_is_killed_while_filling_leaves_nothing_that_is_trusted(on_disk, tmp_path):
    code = f"""
        import sys, time
        from dataclasses import replace
        import memfit
        from memfit.data import building, disk
        decide = building.decide
        def decided(*args, **kwargs):
            layout = decide(*args, **kwargs)
            return replace(layout, decisions=tuple(replace(each, cache="disk") for each in layout.decisions))
        building.decide = decided
        written = disk._written
        def slow(path, needed, size, batches, step):
            def said(more):
                print("filling", flush=True)
                time.sleep(60)
            return written(path, needed, size, batches, said)
        disk._written = slow
        memfit.data.image_folder({str(tmp_path / "photos")!r}, image_size=16, batch_size=4, shuffle=False,
                                 cache_dir={str(tmp_path / "cache")!r})
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout.readline() == "filling\n"
        child.send_signal(signal.SIGKILL)
    (left,) = caches(tmp_path)
    assert left.name.endswith(".unfinished")
    time.sleep(0.1)
    assert len(images(on_disk())) == 6
    (cache,) = caches(tmp_path)
    assert (cache / "complete.json").exists()
