import sys

from memfit.hardware import installation
from memfit.hardware.installation import read_installation

CUDA_BUILD = (
    '"""Auto-generated."""\nimport collections\n\nbuild_info = collections.OrderedDict('
    "[('cuda_version', '12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True)])\n"
)


def install(monkeypatch, site, build_info):
    platform = site / "tensorflow/python/platform"
    platform.mkdir(parents=True)
    (site / "tensorflow/__init__.py").write_text("raise RuntimeError('imported')")
    (platform / "build_info.py").write_text(build_info)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(installation, "tensorflow_distribution", lambda: ("tensorflow", "2.21.0"))
    monkeypatch.setattr(installation, "_loads", lambda _: False)


def test_the_installed_build_is_read_without_importing_it(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, CUDA_BUILD)
    found = read_installation({})
    assert (found.cuda_build, found.cuda_version, found.cudnn_version) == (True, "12.5.1", "9")


def test_libraries_are_looked_for_next_to_tensorflow_and_in_the_search_path(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path / "site", CUDA_BUILD)
    for name in ("nvidia/cublas/lib/libcublas.so.12", "nvidia/cublas/lib/libcublasLt.so.12"):
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/libcudnn.so.9").touch()
    missing = read_installation({"LD_LIBRARY_PATH": str(tmp_path / "elsewhere")}).missing_libraries
    assert missing == ("libcudart.so.12", "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12")


def test_a_build_record_that_cannot_be_read_is_unknown(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "build_info = something_else()")
    found = read_installation({})
    assert (found.cuda_build, found.missing_libraries) == (None, None)
