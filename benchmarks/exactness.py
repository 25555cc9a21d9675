"""Pairs of a model and a technique: how many train to the same result, how many are refused, how many differ.

```console
$ python benchmarks/exactness.py --out benchmarks/results/exactness.json
```

The pairs are those of `tests/integration/exactness`. A pair is equal when every weight, seed, statistic, optimizer
variable, metric and log agrees with plain Keras training, refused when memfit raises an error before it changes
anything, and fails otherwise.
"""

import argparse
import json
import sys
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from versions import versions

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.integration.exactness.cases_layers import LAYERS, STATE_AND_STRUCTURE
from tests.integration.exactness.cases_training import LOSSES, METRICS, OPTIMIZERS
from tests.integration.exactness.cases_usage import CALLBACKS, CLASSES_OF_MODELS, DATA, SETTINGS
from tests.integration.exactness.harness import Case, SilentDifference, outcome

_CASES: list[Case] = [
    *LAYERS,
    *STATE_AND_STRUCTURE,
    *LOSSES,
    *OPTIMIZERS,
    *METRICS,
    *DATA,
    *CLASSES_OF_MODELS,
    *CALLBACKS,
    *SETTINGS,
]


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="only these groups or cases")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [case for case in _CASES if not given.names or {case.name, case.group} & {*given.names}]
    began = time.perf_counter()
    results = [_result(case, technique) for case in chosen for technique in case.techniques]
    _show(results, time.perf_counter() - began)
    if given.out:
        date = datetime.now(tz=timezone.utc).date().isoformat()
        kept = {"date": date, "versions": versions(), "outcomes": _counts(results), "pairs": results}
        given.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _result(case: Case, technique: str) -> dict[str, Any]:
    result: dict[str, Any] = {"group": case.group, "case": case.name, "technique": technique}
    began = time.perf_counter()
    try:
        result["outcome"] = outcome(case, technique)
    except SilentDifference as error:
        result |= {"outcome": "different", "reason": str(error)}
    except Exception as error:  # noqa: BLE001 (a crash is a result, too)
        result |= {"outcome": "crash", "reason": f"{type(error).__name__}: {error}"[:500]}
    result["seconds"] = round(time.perf_counter() - began, 2)
    Console(stderr=True).print(_line(result), markup=False, highlight=False)
    return result


def _line(result: dict[str, Any]) -> str:
    return f"{result['group']}: {result['case']} x {result['technique']}: {result['outcome']} ({result['seconds']} s)"


def _counts(results: list[dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(each["outcome"] for each in results))


def _show(results: list[dict[str, Any]], seconds: float) -> None:
    table = Table("", "pairs", "equal", "refused", "different", "crash")
    for group in [*dict.fromkeys(each["group"] for each in results), "all"]:
        of_group = [each for each in results if group in (each["group"], "all")]
        counts = _counts(of_group)
        shown = [str(counts.get(name, 0)) for name in ("equal", "refused", "different", "crash")]
        table.add_row(group, str(len(of_group)), *shown)
    console = Console()
    console.print(table)
    for each in results:
        if "reason" in each:
            console.print(f"{each['case']} x {each['technique']}: {each['reason']}", markup=False, highlight=False)
    console.print(f"{seconds:.0f} s")


if __name__ == "__main__":
    main()
