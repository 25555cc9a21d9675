"""What is said when a script ends because memory ran out: twenty lines after the traceback."""

import sys
from types import TracebackType
from typing import Any

from memfit.observe.oom import explain_oom
from memfit.report.console import stderr
from memfit.script.settings import Settings


def explain_at_the_end(model: Any | None, batch: int | None, settings: Settings) -> None:
    """Have the error that ends the program explained after its traceback is shown."""
    shown_by = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        shown_by(kind, error, traceback)
        console = stderr()
        with console.status("memfit: looking for what would make it fit"):
            found = explain_oom(error, model, batch, limit=settings.device_limit, numerics=settings.numerics)
        console.print(f"\n{found}", soft_wrap=True, markup=False)

    sys.excepthook = show
