import pytest

from memfit.hardware.environment import environment_effects


def effect(name, value):
    (found,) = environment_effects({name: value, "HOME": "/nowhere"})
    return found


def test_only_variables_that_change_memory_are_listed():
    assert environment_effects({"HOME": "/nowhere", "PATH": ""}) == ()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("CUDA_VISIBLE_DEVICES", "-1", "hides every GPU"),
        ("CUDA_VISIBLE_DEVICES", "2,3", "only GPU 2,3"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true", "grows on demand"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "FALSE", "at once"),
        ("TF_GPU_ALLOCATOR", "cuda_malloc_async", "fragmentation"),
        ("TF_CUDNN_WORKSPACE_LIMIT_IN_MB", "512", "512 MiB"),
        ("TF_CUDNN_USE_AUTOTUNE", "0", "first convolution algorithm"),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=2", "compiles parts"),
        ("KERAS_BACKEND", "jax", "not on TensorFlow"),
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "false", "no effect on TensorFlow"),
    ],
)
def test_the_effect_depends_on_the_value(name, value, says):
    assert says in effect(name, value).effect
    assert effect(name, value).valid


@pytest.mark.parametrize(
    ("name", "value"),
    [("TF_FORCE_GPU_ALLOW_GROWTH", "yes"), ("TF_CUDNN_WORKSPACE_LIMIT_IN_MB", "1GB"), ("TF_GPU_ALLOCATOR", "jemalloc")],
)
def test_a_value_tensorflow_does_not_understand_is_marked(name, value):
    assert not effect(name, value).valid
