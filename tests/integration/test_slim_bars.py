"""What slimming, pruning and quantization may cost, on a network that learns shapes (`benchmarks/slimming.py`)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_small_network_keeps_its_accuracy_and_loses_its_bytes(tmp_path):
    command = [
        sys.executable,
        str(ROOT / "benchmarks/slimming.py"),
        "--only",
        "shapes",
        "--json",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {each["case"]: each for each in json.loads((tmp_path / "out").read_text())["shapes"]}
    plain = found["plain"]
    assert plain["accuracy"] > 0.95
    assert found["separable"]["lost_points"] <= 2
    assert found["80 % sparse"]["lost_points"] <= 2
    assert found["80 % sparse"]["sparsity"] == pytest.approx(0.8, abs=0.01)
    assert found["half the filters"]["lost_points"] <= 3
    assert found["half the filters"]["measured_predict_peak_bytes"] <= 0.7 * plain["measured_predict_peak_bytes"]
    assert found["int8"]["lost_points"] <= 1
    assert found["int8"]["file_bytes"] <= 0.3 * found["int8"]["of_bytes"]
