"""What a prediction itself costs: seconds cold, seconds for another batch size, and host memory.

Usage:
    python benchmarks/cost.py [--jit on|off]
"""

import argparse
import os
import resource
import sys
import tempfile
import time

from rich.console import Console
from rich.table import Table


def main() -> None:
    """Predict ResNet50 at a few batch sizes with an empty cache and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jit", choices=("on", "off"), default="off")
    jit = parser.parse_args().jit == "on"
    with tempfile.TemporaryDirectory() as cache:
        os.environ["MEMFIT_CACHE"] = cache
        started = time.perf_counter()
        import keras

        import memfit

        model = keras.applications.ResNet50(weights=None)
        model.compile("adam", "sparse_categorical_crossentropy")
        built = time.perf_counter()
        estimate = memfit.estimate(model, batch_size=64, gpu="H200", jit=jit)
        table = Table("what", "result")
        table.add_row("import and build", f"{built - started:.1f} s")
        table.add_row(f"first estimate, batch 64 ({estimate.method})", f"{time.perf_counter() - built:.1f} s")
        for batch in (32, 128, 4096):
            before = time.perf_counter()
            peak = estimate.at(batch).steady_peak.value
            table.add_row(f"batch {batch}: {peak / 2**30:.1f} GiB", f"{time.perf_counter() - before:.2f} s")
    usage = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    table.add_row("host memory, the larger of this process and its children", f"{usage / 2**20:.2f} GiB")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
