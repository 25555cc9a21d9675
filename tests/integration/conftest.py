"""What several files of tests set up."""

import pytest

from memfit.compat.graph_gradients import gradients_kept_by_graphs


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


@pytest.fixture(autouse=True)
def _graphs_are_freed():
    """TensorFlow keeps every graph that Keras trains with: gigabytes in a process with hundreds of tests."""
    with gradients_kept_by_graphs():
        yield
