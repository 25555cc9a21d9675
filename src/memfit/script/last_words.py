"""The explanation after the traceback of a script that ran out of memory: at most twenty lines."""

import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from memfit.observe.oom import explain_oom
from memfit.report.console import stderr
from memfit.script.settings import Settings


def explain_at_the_end(model: Any | None, batch: int | None, spec: Any, settings: Settings) -> None:
    """Have the error that ends the program explained after its traceback is shown."""
    shown_by = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        shown_by(kind, error, traceback)
        # The memory is full, and so may the disk be: what fails here must not hide the traceback.
        with suppress(Exception):
            console = stderr()
            with console.status("memfit: searching for a plan that fits"):
                found = explain_oom(
                    error, model, batch, limit=settings.device_limit, numerics=settings.numerics, data=spec
                )
            console.print(f"\n{found}", soft_wrap=True, markup=False)

    sys.excepthook = show
