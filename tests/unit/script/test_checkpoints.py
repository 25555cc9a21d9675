"""When snapshots are due."""

from memfit.script import checkpoints
from memfit.script.checkpoints import Pace


def test_snapshots_take_a_fiftieth_of_the_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])
    pace = Pace(None)
    assert pace.due()
    began, now[0] = now[0], 102.0  # it took two seconds
    pace.took(began)
    now[0] += 99
    assert not pace.due()
    now[0] += 1
    assert pace.due()


def test_a_pace_that_is_asked_for_is_kept(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])
    pace = Pace(30)
    assert not pace.due()
    now[0] = 30
    assert pace.due()
