"""XLA:GPU without a GPU; needs `memfit[xla]`. `MEMFIT_REQUIRE_XLA=1` on CI makes its absence a failure."""

import os

import pytest

from memfit.estimation.xla.deviceless import missing_packages


@pytest.fixture(autouse=True)
def _extra():
    missing = missing_packages()
    if missing and os.environ.get("CI") and os.environ.get("MEMFIT_REQUIRE_XLA") == "1":
        pytest.fail(f"memfit[xla] is required here: {', '.join(missing)}")
    if missing:
        pytest.skip(f"memfit[xla] is not installed: {', '.join(missing)}")


@pytest.mark.slow
def test_a_small_network_is_compiled_for_a_gpu_that_is_not_there(run_child):
    found = run_child(
        """
    import keras, tensorflow as tf
    from keras import layers
    from memfit.estimation.xla.deviceless import compile_for
    from memfit.estimation.xla.hlo import lower_to_hlo
    from memfit.estimation.xla.steady import steady_peak
    from memfit.hardware.catalog import find_gpu

    model = keras.Sequential([
        keras.Input((64, 64, 3)),
        layers.Conv2D(32, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
        layers.Conv2D(32, 3, padding="same", name="second"), layers.BatchNormalization(), layers.ReLU(),
        layers.GlobalAveragePooling2D(), layers.Dense(4),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    specs = (tf.TensorSpec((32, 64, 64, 3), "float32"), tf.TensorSpec((32,), "int32"))
    lowered = lower_to_hlo(lambda data: model.distribute_strategy.run(model.train_step, args=(data,)), specs)
    gpu = find_gpu("A100 SXM4 80GB")
    compiled = compile_for(lowered.hlo, gpu)
    peak = steady_peak(compiled, lowered, gpu)
    report({
        "temp": compiled.temp_bytes, "live": compiled.live_peak, "kinds": [c.kind for c in compiled.convolutions],
        "workspaces": max(c.workspace for c in compiled.convolutions), "layers": list(compiled.by_layer()),
        "remat": compiled.rematerialised, "peak": [peak.low, peak.likely, peak.high],
    })
    """
    )
    activation = 32 * 64 * 64 * 32 * 4
    # Two convolution results and one activation at least.
    assert 3 * activation <= found["temp"] <= 8 * activation
    assert found["live"] == pytest.approx(found["temp"], rel=0.1)
    assert sorted(set(found["kinds"])) == ["backward_filter", "backward_input", "forward"]
    assert found["workspaces"] > 0
    assert any("second" in layer for layer in found["layers"])
    assert found["remat"] == 0
    low, likely, high = found["peak"]
    assert low <= likely <= high


@pytest.mark.slow
def test_old_cards_and_unknown_ones_are_compiled_for_too(run_child):
    temporaries = run_child(
        """
    import tensorflow as tf
    from memfit.estimation.xla.deviceless import compile_for
    from memfit.estimation.xla.hlo import lower_to_hlo
    from memfit.hardware.catalog import find_gpu

    kernel = tf.Variable(tf.ones((512, 512)))
    lowered = lower_to_hlo(lambda x: tf.reduce_sum(tf.nn.relu(x @ kernel) @ kernel), tf.TensorSpec((2048, 512)))
    report([compile_for(lowered.hlo, find_gpu(name)).temp_bytes for name in ("Tesla V100 SXM2 16GB", "24GiB")])
    """
    )
    # The product is kept for the second one; its activation may be fused.
    assert all(size >= 2048 * 512 * 4 for size in temporaries)


@pytest.mark.slow
def test_a_module_xla_cannot_read_is_an_error_not_a_crash(run_child):
    message = run_child(
        """
    from memfit.estimation.xla.deviceless import XlaCompilationError, compile_for
    from memfit.hardware.catalog import find_gpu
    try:
        compile_for(b"not a module", find_gpu("H200"), timeout=120)
    except XlaCompilationError as error:
        report(str(error))
    """
    )
    assert "H200" in message


@pytest.mark.slow
def test_products_that_tritons_first_tiles_do_not_fit_are_compiled_without_triton(run_child):
    method, peak, weights = run_child(
        """
    import keras, memfit

    inputs = keras.Input((196, 384))
    tensor = keras.layers.LayerNormalization()(inputs)
    tensor = inputs + keras.layers.MultiHeadAttention(6, 64)(tensor, tensor)
    outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling1D()(tensor))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse")
    estimate = memfit.estimate(model, batch_size=64, gpu="H200", jit=True)
    report([estimate.method, estimate.steady_peak.value, 4 * model.count_params()])
    """
    )
    assert method == "XLA compiler"
    # Weights and slots, and of the batch of 64 at least query, key and value.
    assert peak > 3 * weights + 3 * 64 * 196 * 384 * 4


def test_a_compiler_that_fails_costs_accuracy_and_no_more(run_child):
    method, low, high = run_child(
        """
    import keras, memfit
    from memfit.estimation import phases

    def failing(*_):
        raise phases.XlaCompilationError("the compiler does not like it.")

    phases.compile_for = failing
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    estimate = memfit.estimate(model, batch_size=64, gpu="H200", jit=True)
    report([estimate.method, estimate.steady_peak.low, estimate.steady_peak.high])
    """
    )
    assert method == "HLO liveness, since XLA's compiler failed"
    assert 0 < low < high
