import pytest

from memfit import framework
from memfit.errors import MemfitError
from memfit.estimation.xla import deviceless
from memfit.estimation.xla.deviceless import XlaCompilationError, XlaExtraMissingError, compile_for, missing_packages
from memfit.hardware.catalog import find_gpu

H200 = find_gpu("H200")


@pytest.fixture
def child(monkeypatch, tmp_path):
    """Let the child run this code instead of the compiler."""
    monkeypatch.setattr(deviceless, "missing_packages", tuple)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(deviceless, "_CHILD", "standin_compiler")

    def use(code):
        (tmp_path / "standin_compiler.py").write_text(code)

    return use


def test_the_missing_extra_is_named_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(framework, "installed_version", lambda name: None)
    with pytest.raises(XlaExtraMissingError, match=r"jax-cuda12-pjrt \(not installed\).*memfit\[xla\]") as caught:
        compile_for(b"", H200)
    assert caught.value.exit_code == 3


def test_another_version_of_the_plugin_is_refused(monkeypatch):
    monkeypatch.setattr(framework, "installed_version", lambda name: "0.12.0" if name == "jaxlib" else "0.9.0.1")
    assert missing_packages() == ("jaxlib (found 0.12.0, needs 0.9.0.1)",)


def test_a_compiler_that_hangs_is_ended_and_said_to(child):
    child("import time\ntime.sleep(600)")
    with pytest.raises(XlaCompilationError, match=r"not done .* after 0\.5 s"):
        compile_for(b"", H200, timeout=0.5)


def test_a_compiler_that_crashes_names_the_signal(child):
    child("import os, signal\nos.kill(os.getpid(), signal.SIGABRT)")
    with pytest.raises(XlaCompilationError, match="SIGABRT"):
        compile_for(b"", H200)


def test_a_compiler_that_fails_passes_its_last_words_on(child):
    child("raise RuntimeError('unsupported operation Foo')")
    with pytest.raises(XlaCompilationError, match=r"exit code 1.*unsupported operation Foo") as caught:
        compile_for(b"", H200)
    assert isinstance(caught.value, MemfitError)


def test_a_compiler_that_says_nothing_is_no_success(child):
    child("")
    with pytest.raises(XlaCompilationError, match="exit code 0"):
        compile_for(b"", H200)


def test_the_child_sees_no_device_settings_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", "--xla_nonsense")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    environment = deviceless._environment(tmp_path, ["--extra"])
    assert "nonsense" not in environment["XLA_FLAGS"]
    assert environment["XLA_FLAGS"].endswith("--extra")
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert environment["TMPDIR"] == str(tmp_path)
