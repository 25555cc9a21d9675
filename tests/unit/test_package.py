import subprocess
import sys

import pytest

import memfit


def test_every_public_name_resolves():
    for name in memfit.__all__:
        assert getattr(memfit, name) is not None
    assert set(memfit.__all__) <= set(dir(memfit))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        memfit.nonsense  # noqa: B018


def test_importing_memfit_imports_neither_tensorflow_nor_the_command_line():
    code = (
        "import sys, memfit; memfit.devices; memfit.find_gpu('3060'); "
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'keras', 'numpy', 'typer', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
