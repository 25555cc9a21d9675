"""The random numbers that Python and NumPy draw for the whole process."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Afterwards Python and NumPy draw the numbers that they would have drawn without what runs inside."""
    import numpy as np

    python, numpy = random_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def random_state() -> tuple[Any, Any]:
    """Where Python's and NumPy's generators stand."""
    import numpy as np

    return random.getstate(), np.random.get_state()
