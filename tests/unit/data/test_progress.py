from rich.console import Console

from memfit.data.progress import progress
from memfit.report import console


def test_nothing_is_shown_where_nobody_looks_at_a_terminal(capsys):
    with progress("filling", 3) as step:
        step(1)
        step(2)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_what_is_done_and_how_far(monkeypatch, capsys):
    monkeypatch.setattr(console, "stderr", lambda: Console(stderr=True, force_terminal=True, width=80))
    with progress("filling the cache", 4) as step:
        step(4)
    shown = capsys.readouterr().err
    assert "filling the cache" in shown
    assert "100%" in shown
