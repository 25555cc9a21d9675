"""`memfit report`: what happened in a run, as a page to look at."""

from pathlib import Path
from typing import Annotated, Any

import typer

from memfit.errors import InputError
from memfit.observe.record import latest_record, read_record
from memfit.report.console import print_json, stderr, stdout
from memfit.report.run_compare import compare
from memfit.report.run_compare_terminal import render_comparison
from memfit.report.run_terminal import render_run
from memfit.report.run_view import run_view

_SUFFIX = ".jsonl"


def report(
    record: Annotated[
        Path | None, typer.Argument(help="A run's record, or a folder for the newest in it.", metavar="RECORD")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page to write; by default beside the record.", metavar="PAGE.HTML"),
    ] = None,
    compared: Annotated[
        tuple[Path, Path] | None, typer.Option("--compare", help="Show two runs side by side.", metavar="A B")
    ] = None,
    terminal: Annotated[bool, typer.Option("--terminal", help="Show it here instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the page.")] = False,
) -> None:
    """Show what a run took and why: one HTML page that loads nothing, or the same in the terminal."""
    _refuse(record, output, compared, terminal=terminal, as_json=as_json)
    paths = [*compared] if compared else [latest_record(record or ".") if record is None or record.is_dir() else record]
    page = output or _page_beside(paths)
    if not terminal and not as_json:
        _refuse_to_write(page, force=force)
    with stderr().status(f"reading {', '.join(path.name for path in paths)}"):
        views = [run_view(read_record(path)) for path in paths]
    comparison = compare(*views) if compared else None
    if as_json:
        print_json(views[0] if comparison is None else comparison)
    elif terminal:
        stdout().print(render_run(views[0]) if comparison is None else render_comparison(comparison))
    else:
        _write(page, comparison, views, force=force)


def _refuse(
    record: Path | None,
    output: Path | None,
    compared: tuple[Path, Path] | None,
    *,
    terminal: bool,
    as_json: bool,
) -> None:
    if terminal and as_json:
        raise InputError("--terminal and --json are two ways to show the same. Leave one of them out.")
    if output is not None and (terminal or as_json):
        raise InputError(f"-o {str(output)!r} names a page, and --terminal and --json write none. Leave -o out.")
    if record is not None and compared is not None:
        raise InputError(f"--compare has its two records; {str(record)!r} is one too many. Leave it out.")


def _page_beside(paths: list[Path]) -> Path:
    """`run-1.memfit.html` for `run-1.memfit.jsonl`, and a name of both for two."""
    stems = [path.name.removesuffix(_SUFFIX) for path in paths]
    name = stems[0] if len(stems) == 1 else f"{stems[0].removesuffix('.memfit')}-against-{stems[1]}"
    return paths[0].parent / f"{name}.html"


def _refuse_to_write(page: Path, *, force: bool) -> None:
    if page.is_dir() or not page.absolute().parent.is_dir():
        raise InputError(f"-o {str(page)!r} must be a file in a folder that exists, such as report.html.")
    if page.exists() and not force:
        raise InputError(f"{str(page)!r} exists already. Add --force to overwrite it, or -o another file.")


def _write(page: Path, comparison: dict[str, Any] | None, views: list[dict[str, Any]], *, force: bool) -> None:
    # Only the page needs jinja2, and no other command should wait for it.
    from memfit.report.run_page import comparison_page, run_page

    text = run_page(views[0]) if comparison is None else comparison_page(comparison, views)
    try:
        with page.open("wb" if force else "xb") as file:
            # Half characters can be in a name of a record, and nowhere in a file.
            file.write(text.encode("utf-8", errors="replace"))
    except FileExistsError:
        _refuse_to_write(page, force=False)
    except OSError as error:
        raise InputError(
            f"{str(page)!r} cannot be written: {error.strerror or error}. Name another place with -o."
        ) from error
    stdout().print(f"Wrote {page}", soft_wrap=True, markup=False)
    stdout().print("Open it in a browser; it is one file and needs no network.", soft_wrap=True, markup=False)
