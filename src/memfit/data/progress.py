"""A line on stderr for what takes longer than a moment; nothing where nobody looks at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how much of something is done; call what it gives with how much more."""
    from rich.progress import Progress

    from memfit.report.console import stderr

    console = stderr()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=total)
        yield lambda more: shown.advance(task, more)
