import gc

import pytest

from memfit.trace.garbage import no_garbage_collected


@no_garbage_collected()
def _fail_if_collecting():
    raise ValueError(f"collecting: {gc.isenabled()}")


def test_collecting_is_off_inside_and_on_again_after_an_error():
    with pytest.raises(ValueError, match="collecting: False"):
        _fail_if_collecting()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with no_garbage_collected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
