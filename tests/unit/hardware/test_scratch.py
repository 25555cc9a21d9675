import json
import os
from pathlib import Path

from memfit.hardware import scratch
from memfit.units import GIB, MIB


def test_the_cap_is_that_of_the_process(monkeypatch):
    monkeypatch.delenv(scratch.CAP, raising=False)
    assert scratch.cap() == 8 * GIB
    monkeypatch.setenv(scratch.CAP, "256")
    assert scratch.cap() == 256 * MIB


def test_a_cap_lasts_as_long_as_asked_and_leaves_fourier_kernels_out(monkeypatch):
    monkeypatch.setenv(scratch.CAP, "4096")
    monkeypatch.delenv(scratch.ERRATA, raising=False)
    with scratch.capped(GIB):
        assert scratch.cap() == GIB
        assert scratch.leaves_fft_kernels_out()
    assert scratch.cap() == 4 * GIB
    assert scratch.ERRATA not in os.environ


def test_somebody_elses_choice_of_kernels_is_kept(monkeypatch):
    monkeypatch.setenv(scratch.ERRATA, "mine.json")
    scratch.leave_fft_kernels_out()
    assert os.environ[scratch.ERRATA] == "mine.json"
    assert not scratch.leaves_fft_kernels_out()


def test_the_engines_are_listed_as_cudnn_reads_them(monkeypatch):
    monkeypatch.delenv(scratch.ERRATA, raising=False)
    with scratch.capped(GIB):
        listed = json.loads(Path(os.environ[scratch.ERRATA]).read_text(encoding="utf-8"))
    rules = {(rule["operation"], rule["engine"]) for rule in listed["rules"]}
    assert {("ConvFwd", 3), ("ConvBwdFilter", 18), ("ConvBwdData", 50)} < rules
    # Kernels that add a bias, too, as XLA has them; cuDNN's frontend names them by their operations.
    assert {("ConvFwd_ADD", 12), ("ConvFwd_ADD_ADD_RELU_FWD", 12)} < rules
