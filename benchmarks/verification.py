"""What it costs to verify that a plan trains to the same result: the first time, and when it is remembered.

Usage:
    python benchmarks/verification.py [--json OUT.json] [--only resnet50]

Each model is verified in a process of its own, twice with one cache. The bar is 25 s for ResNet50 on two idle cores,
and under 1 s the second time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from versions import versions

_BARS = {"first": 25.0, "second": 1.0}
_CASES = {
    "resnet50": ("keras.applications.ResNet50(weights=None)", (224, 224, 3), 1000, "memfit.Plan(remat=6)"),
    "mobilenet": ("keras.applications.MobileNetV2(weights=None)", (224, 224, 3), 1000, "memfit.Plan(remat=6)"),
    "vgg16": ("keras.applications.VGG16(weights=None)", (224, 224, 3), 1000, "memfit.Plan(micro_batch=8, remat=4)"),
}
_SCRIPT = """
import json, time
import keras
import numpy as np
import memfit

model = {build}
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
random = np.random.default_rng(0)
data = random.random((8, *{shape}), "float32"), random.integers(0, {classes}, 8)
began = time.perf_counter()
found = memfit.verify(model, {plan}, data)
print(json.dumps({{"seconds": time.perf_counter() - began, "exact": found.exact, "remembered": found.remembered,
                   "reason": found.reason}}))
"""


def verified(name: str, cache: Path) -> dict[str, Any]:
    """Verify a model in a new process."""
    build, shape, classes, plan = _CASES[name]
    script = cache / f"{name}.py"
    script.write_text(_SCRIPT.format(build=build, shape=shape, classes=classes, plan=plan), encoding="utf-8")
    environment = {**os.environ, "MEMFIT_CACHE": str(cache), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, str(script)], env=environment, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", choices=[*_CASES])
    options = parser.parse_args()
    table = Table("model", "plan", "first, s", "remembered, s", "outcome", box=None)
    cases = []
    with tempfile.TemporaryDirectory() as cache:
        for name in options.only or _CASES:
            first, second = verified(name, Path(cache)), verified(name, Path(cache))
            outcome = "same result" if first["exact"] else first["reason"]
            seconds = [f"{each['seconds']:.1f}" for each in (first, second)]
            table.add_row(name, _CASES[name][3], *seconds, outcome)
            cases.append({"model": name, "plan": _CASES[name][3], "first": first, "second": second})
    Console().print(table)
    if options.json:
        result = {
            "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
            "processors": os.cpu_count(),
            "versions": versions(),
            "bars": _BARS,
            "cases": cases,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
