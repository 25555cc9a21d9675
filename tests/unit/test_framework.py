import pytest

from memfit import framework
from memfit.errors import BrokenEnvironmentError


@pytest.fixture(autouse=True)
def _nothing_found_usable(monkeypatch):
    monkeypatch.setattr(framework, "_usable", {})


def test_no_tensorflow_is_one_sentence_with_the_line_to_paste(monkeypatch):
    monkeypatch.setattr(framework, "tensorflow_distribution", lambda: None)
    with pytest.raises(BrokenEnvironmentError, match=r"not installed.*memfit\[cuda\]") as caught:
        framework.tensorflow()
    assert caught.value.exit_code == 3


def test_an_old_tensorflow_is_refused_before_it_is_imported(monkeypatch):
    monkeypatch.setattr(framework, "tensorflow_distribution", lambda: ("tensorflow", "2.15.1"))
    with pytest.raises(BrokenEnvironmentError, match=r"2\.15\.1 is too old.*2\.18"):
        framework.tensorflow()


def test_a_broken_tensorflow_is_told(monkeypatch):
    def broken(_):
        raise ImportError("libsomething.so: cannot open shared object file")

    monkeypatch.setattr(framework, "import_module", broken)
    with pytest.raises(BrokenEnvironmentError, match="libsomething"):
        framework.tensorflow()


@pytest.mark.parametrize(
    ("version", "backend", "says"),
    [
        (None, "tensorflow", "not installed"),
        ("2.15.0", "tensorflow", "too old"),
        ("3.8.0", "tensorflow", "too old"),
        ("3.15.1", "torch", "'torch' backend"),
    ],
)
def test_a_keras_that_cannot_be_used(version, backend, says):
    assert says in framework.keras_complaint(version, backend)


@pytest.mark.parametrize("version", ["3.9.0", "3.15.1", "4.0"])
def test_a_keras_that_can(version):
    assert framework.keras_complaint(version, "tensorflow") is None


def test_the_backend_comes_from_the_environment_then_the_file(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert framework.keras_backend() == "tensorflow"
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert framework.keras_backend() == "jax"
    (tmp_path / "keras.json").write_text("{broken")
    assert framework.keras_backend() == "tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert framework.keras_backend() == "torch"


@pytest.mark.parametrize(("version", "key"), [("2.21.0", (2, 21)), ("2.19.0rc1", (2, 19)), ("3", (3, 0))])
def test_version_key(version, key):
    assert framework.version_key(version) == key
