"""Keras's global seed generator, which unseeded `keras.random` functions use."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memfit.random_state import random_state_kept
from memfit.techniques.instance import replaced
from memfit.techniques.made_up_data import in_fresh_thread


@contextmanager
def global_seed_ready() -> Iterator[None]:
    """Have the generator before it is used: inside a loop no variable can be created.

    Creating it takes a number from Python's random generator. Where nothing used it, neither has happened.
    """
    module, state = (
        import_module("keras.src.random.seed_generator"),
        import_module("keras.src.backend.common.global_state"),
    )
    name = module.GLOBAL_SEED_GENERATOR
    if state.get_global_attribute(name) is not None:
        yield
        return
    before = random.getstate()
    # A function that is traced a second time must not create variables, not even outside of its graph.
    generator = in_fresh_thread(module.SeedGenerator)
    state.set_global_attribute(name, generator)
    after = random.getstate()
    used = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        used.append(True)
        return type(generator).next(generator, *args, **kwargs)

    try:
        with replaced(generator, "next", noted):
            yield
    finally:
        if not used and state.get_global_attribute(name) is generator:
            state.set_global_attribute(name, None)
            if random.getstate() == after:
                random.setstate(before)


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Leave Python's and NumPy's random numbers as they were, but for the one that seeds a generator made inside."""
    before = _current()
    try:
        with random_state_kept():
            yield
    finally:
        if _current() is not before:
            import_module("keras.src.random.seed_generator").make_default_seed()


def _current() -> Any:
    state = import_module("keras.src.backend.common.global_state")
    return state.get_global_attribute(import_module("keras.src.random.seed_generator").GLOBAL_SEED_GENERATOR)
