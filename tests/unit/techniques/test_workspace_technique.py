from types import SimpleNamespace

import pytest

from memfit.errors import InputError, SizeError
from memfit.techniques import workspace

MODEL = SimpleNamespace(name="net")


@pytest.fixture(autouse=True)
def a_process_without_convolutions(monkeypatch):
    monkeypatch.setattr(workspace, "_taken_up", [])


def test_it_is_exact_and_says_the_cap():
    verdict = workspace.check(MODEL, "512MiB")
    assert (verdict.grade, "512 MiB" in verdict.why) == ("exact", True)


def test_what_is_no_size_is_refused():
    with pytest.raises(SizeError):
        workspace.check(MODEL, "much")
    with pytest.raises(InputError, match="at least 1 MiB"):
        workspace.check(MODEL, 1000)


def test_a_smaller_cap_than_that_of_an_earlier_plan_comes_too_late(monkeypatch):
    monkeypatch.setattr(workspace, "_taken_up", [2**30])
    assert workspace.check(MODEL, "2GiB").grade == "exact"
    with pytest.raises(InputError, match="new process"):
        workspace.check(MODEL, "512MiB")
