"""Pages in a real Chromium. `MEMFIT_REQUIRE_BROWSER=1` on CI makes its absence a failure."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.records import write_record

from memfit.observe.record import read_record
from memfit.report.run_page import run_page
from memfit.report.run_view import run_view

# The sandbox does not start for root, as whom CI runs; the others keep Chromium from calling home.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 812}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, started once."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        missing = "no Chromium is installed (Debian: apt-get install chromium)"
        if os.environ.get("MEMFIT_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{missing}, and it is required here")
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium, tmp_path) -> Iterator[Callable[..., Any]]:
    """Show HTML in a fresh window; at the end nothing may be in the console and no request may have left the file."""
    windows = []
    said: list[str] = []
    asked: list[str] = []

    def show_html(html: str, *, size: dict[str, int] = DESKTOP, dark: bool = False, **options: Any) -> Any:
        path = Path(tmp_path / f"page{len(windows)}.html")
        path.write_bytes(html.encode("utf-8", errors="replace"))
        scheme = "dark" if dark else "light"
        windows.append(chromium.new_context(viewport=size, color_scheme=scheme, **options))
        page = windows[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=true]", state="attached")
        return page

    yield show_html
    for window in windows:
        window.close()
    assert not said
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len(asked) == len(windows) + sum(url.startswith("data:") for url in asked)


@pytest.fixture
def show_run(show, tmp_path) -> Callable[..., Any]:
    """Show the page of a record made of these lines."""

    def show_lines(lines: list[dict[str, Any]], **options: Any) -> Any:
        return show(run_page(run_view(read_record(write_record(tmp_path / "run.memfit.jsonl", lines)))), **options)

    return show_lines
