"""What several files of tests set up."""

import pytest


@pytest.fixture
def in_float64():
    """So that equal means equal."""
    import keras

    type_, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    # Keras keeps the policy it once made of another type.
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(type_)
    keras.config.set_dtype_policy(policy)
