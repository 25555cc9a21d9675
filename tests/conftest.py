"""Fixtures every test may use."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Tests neither use nor fill the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMFIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def run_child(tmp_path) -> Callable[..., Any]:
    """Run Python code in a fresh process and return what it passed to `report(...)`.

    TensorFlow's devices and allocators belong to the process, so tests that set them need one each.
    """

    def run(code: str, **environment: str) -> Any:
        prelude = f"import json\ndef report(value): open({str(tmp_path / 'report')!r}, 'w').write(json.dumps(value))\n"
        base = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_", "CUDA_"))}
        child = subprocess.run(
            [sys.executable, "-c", prelude + textwrap.dedent(code)],
            env={**base, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert child.returncode == 0, child.stderr[-3000:]
        return json.loads((tmp_path / "report").read_text())

    return run
