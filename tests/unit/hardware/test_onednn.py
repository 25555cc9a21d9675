"""When oneDNN's kernels are turned off."""

import sys

import pytest

from memfit.hardware import onednn


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    for name in (onednn.VARIABLE, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_off_without_a_gpu(tmp_path):
    assert onednn.turn_off(root=tmp_path)
    assert onednn.os.environ[onednn.VARIABLE] == "0"


@pytest.mark.parametrize("value", ["0", "1", ""])
def test_what_the_user_set_stays(monkeypatch, tmp_path, value):
    monkeypatch.setenv(onednn.VARIABLE, value)
    assert not onednn.turn_off(root=tmp_path)
    assert onednn.os.environ[onednn.VARIABLE] == value


def test_not_where_tensorflow_will_find_a_gpu(monkeypatch, tmp_path):
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    assert not onednn.turn_off(root=tmp_path)
    assert onednn.turn_off(visible=[], root=tmp_path)
    monkeypatch.delenv(onednn.VARIABLE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert onednn.turn_off(root=tmp_path)


def test_not_when_tensorflow_is_imported(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    assert not onednn.turn_off(root=tmp_path)
