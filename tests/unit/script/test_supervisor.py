"""When a script is started again, and when not."""

import signal

import pytest

from memfit.script.folder import Progress
from memfit.script.supervisor import restart_reason


def progress(**changes):
    return Progress(**{"fit": 2, "running": True, "model": "m", "techniques": {}, "smaller": True, **changes})


@pytest.mark.parametrize("crash", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_a_crash_during_a_fit_is_a_reason(crash):
    assert crash.name in restart_reason(-crash, progress())


def test_memory_that_ran_out_is_a_reason_and_is_quoted():
    assert "fit 2" in restart_reason(1, progress(out_of_memory="OOM when allocating."))
    assert "OOM when allocating." in restart_reason(1, progress(out_of_memory="OOM when allocating."))


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (0, progress(out_of_memory="the script caught it")),
        (1, progress()),  # some other exception
        (3, progress()),
        (-signal.SIGKILL, progress()),  # somebody wanted it dead
        (-signal.SIGINT, progress()),
        (-signal.SIGTERM, progress()),
        (-signal.SIGABRT, None),  # before the first fit
        (-signal.SIGABRT, progress(running=False)),
        (-signal.SIGABRT, progress(smaller=False)),
        (1, progress(out_of_memory="OOM", smaller=False)),
    ],
)
def test_everything_else_is_none(code, state):
    assert restart_reason(code, state) is None
