"""How long `memfit lint` takes for 1,000 files: those of the installed Keras, which all have to be parsed.

Usage:
    python benchmarks/lint.py [--json benchmarks/results/lint.json] [--files 1000] [--rounds 3]

The whole command is timed, with the start of Python and of its processes; the best of the rounds counts, since a busy
machine only adds to it. The bar is 5 s for 1,000 files on two cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_BAR_SECONDS = 5.0


def keras_files(number: int) -> list[Path]:
    """Python files of the installed Keras; where it has fewer, some of them again."""
    spec = find_spec("keras")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("Keras is not installed; its source is what is linted.")
    folder = Path(spec.submodule_search_locations[0])
    files = sorted(folder.rglob("*.py"))
    return (files * (number // len(files) + 1))[:number]


def timed(paths: list[Path], processors: int) -> dict[str, Any]:
    """Lint a folder with copies of the files on so many processors."""
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(paths):
            Path(folder, f"{number}.py").write_bytes(path.read_bytes())
        command = [sys.executable, "-m", "memfit", "lint", folder, "--format", "json", "--no-config"]
        if hasattr(os, "sched_setaffinity"):
            allowed = set(sorted(os.sched_getaffinity(0))[:processors])
            limited = {"preexec_fn": lambda: os.sched_setaffinity(0, allowed)}
        else:
            limited = {}
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False, **limited)  # type: ignore[call-overload]
        seconds = time.perf_counter() - start
    result = json.loads(done.stdout)
    return {"seconds": seconds, "files": result["files"], "findings": len(result["findings"])}


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "lint.json")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    paths = keras_files(given.files)
    lines = sum(path.read_bytes().count(b"\n") for path in paths)
    rows = []
    table = Table("processors", "files", "lines", "seconds, each round", "best", "bar")
    for processors in (1, 2):
        rounds = [timed(paths, processors) for _ in range(given.rounds)]
        seconds = [each["seconds"] for each in rounds]
        rows.append({"processors": processors, "files": rounds[0]["files"], "lines": lines, "seconds": seconds,
                     "best_seconds": min(seconds), "findings": rounds[0]["findings"]})  # fmt: skip
        shown = ", ".join(f"{each:.2f}" for each in seconds)
        table.add_row(
            str(processors), str(rounds[0]["files"]), f"{lines:,}", shown, f"{min(seconds):.2f}", f"{_BAR_SECONDS}"
        )
    Console().print(table)
    given.json.write_text(json.dumps(rows, indent=2) + "\n")
    Console().print(f"Wrote {given.json}")


if __name__ == "__main__":
    main()
