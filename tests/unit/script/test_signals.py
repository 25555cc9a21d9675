"""What is said of the signal that ended a script."""

import signal

import pytest

from memfit.hardware.host import HostMemory, OomKills
from memfit.script.signals import death_line

HOST = HostMemory(64 * 2**30, 2**30, 16 * 2**30, 2**30)
NONE = OomKills(None, None)


def line(code, before=NONE, after=NONE, **options):
    return death_line(code, before=before, after=after, host=HOST, **options)


@pytest.mark.parametrize("code", [0, 1, 137, -signal.SIGINT])
def test_an_exit_and_ctrl_c_need_no_words(code):
    assert line(code) is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGBUS, signal.SIGUSR1])
def test_every_signal_is_named_in_one_line(number):
    assert line(-number).startswith(f"the script was ended by {number.name}")
    assert "\n" not in line(-number)


def test_the_limit_of_a_container_is_named_where_its_counter_rose():
    text = line(-signal.SIGKILL, OomKills(1, 5), OomKills(2, 6))
    assert text.endswith("since this container or job reached its memory limit of 16 GiB")


def test_the_machines_counter_makes_it_likely():
    assert "most likely the out-of-memory killer" in line(-signal.SIGKILL, OomKills(1, 5), OomKills(1, 6))


def test_a_counter_that_did_not_rise_is_a_fact():
    text = line(-signal.SIGKILL, OomKills(None, 5), OomKills(None, 5))
    assert "or someone with kill -9; the kernel counted no out-of-memory kill" in text
    assert "counted" not in line(-signal.SIGKILL)


def test_a_signal_without_a_name_is_a_number():
    assert line(-(signal.SIGRTMIN + 3)) == f"the script was ended by signal {signal.SIGRTMIN + 3}"


def test_the_sender_of_one_that_was_passed_on_is_named():
    assert line(-signal.SIGTERM, sender=42) == "the script was ended by SIGTERM, which process 42 sent to memfit"


def test_a_crash_under_a_limit_may_be_memory_and_says_what_to_try():
    assert line(-signal.SIGSEGV, limit=8 * 2**20).endswith("The limit was 8 MiB; try 16MiB")
    assert "limit" not in line(-signal.SIGTERM, limit=8 * 2**20)
