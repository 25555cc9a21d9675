"""Lowering real Keras steps on the CPU."""

import pytest

SMALL_CNN = """
    import keras, tensorflow as tf
    from keras import layers
    from memfit.estimation.xla.hlo import lower_to_hlo, read_lowered

    model = keras.Sequential([
        keras.Input((16, 16, 3)),
        layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
        layers.GlobalAveragePooling2D(), layers.Dense(4),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    step = lambda data: model.distribute_strategy.run(model.train_step, args=(data,))
    specs = (tf.TensorSpec((32, 16, 16, 3), "float32"), tf.TensorSpec((32,), "int32"))
"""


def test_a_training_step_is_lowered_with_its_variables_updated_in_place(run_child):
    found = run_child(
        SMALL_CNN
        + """
    lowered = lower_to_hlo(step, specs)
    program = read_lowered(lowered)
    weights = sum(int(tf.size(v)) * 4 for v in model.trainable_variables)
    report({
        "data": [p.size for p in lowered.parameters if p.kind == "data"],
        "variables": lowered.parameter_bytes("variable"),
        "weights": weights,
        "updated": sum(p.size for p in lowered.parameters if p.kind == "variable" and p.updated),
        "opcodes": sorted({i.opcode for i in program.main.instructions}),
        "aliases": len(program.aliases),
        "ran": float(model.optimizer.iterations),
    })
    """
    )
    assert found["data"] == [32 * 16 * 16 * 3 * 4, 32 * 4]
    # Weights and Adam's two slots each; metrics and moving averages come on top.
    assert found["variables"] >= 3 * found["weights"]
    assert found["updated"] > 0.95 * found["variables"]
    assert found["aliases"] > 10
    assert "convolution" in found["opcodes"]
    assert "copy" not in found["opcodes"]
    assert found["ran"] == 0


def test_structured_batches_are_lowered_leaf_by_leaf(run_child):
    sizes = run_child(
        """
    import tensorflow as tf
    from memfit.estimation.xla.hlo import lower_to_hlo

    scale = tf.Variable(tf.ones((5,)))
    def step(data):
        inputs, (target, weight) = data
        return tf.reduce_sum((inputs["left"] * scale + inputs["right"][0] - target) * weight)
    spec = lambda *shape: tf.TensorSpec(shape, "float32")
    specs = ({"left": spec(7, 5), "right": [spec(7, 1)]}, (spec(7, 5), spec(7, 1)))
    lowered = lower_to_hlo(step, specs)
    report([[p.kind, p.size] for p in lowered.parameters])
    """
    )
    assert sizes == [["data", 140], ["data", 28], ["data", 140], ["data", 28], ["variable", 20]]


def test_the_estimate_without_the_compiler_grows_with_the_batch(run_child):
    small, large = run_child(
        SMALL_CNN
        + """
    from memfit.estimation.xla.steady import steady_peak_without_compiler
    peaks = []
    for batch in (32, 128):
        specs = (tf.TensorSpec((batch, 16, 16, 3), "float32"), tf.TensorSpec((batch,), "int32"))
        peaks.append(steady_peak_without_compiler(lower_to_hlo(step, specs)).parts["temporaries"])
    report(peaks)
    """
    )
    activation = 32 * 16 * 16 * 8 * 4
    assert 2 * activation <= small <= 6 * activation
    assert large == pytest.approx(4 * small, rel=0.1)


def test_an_unknown_batch_size_is_refused_with_the_remedy(run_child):
    message = run_child(
        """
    import tensorflow as tf
    from memfit.errors import InputError
    from memfit.estimation.xla.hlo import lower_to_hlo
    try:
        lower_to_hlo(lambda data: data, tf.TensorSpec((None, 3)))
    except InputError as error:
        report(str(error))
    """
    )
    assert "(None, 3)" in message
    assert "batch size" in message


def test_what_xla_cannot_compile_is_said_to(run_child):
    message = run_child(
        """
    import tensorflow as tf
    from memfit.estimation.xla.hlo import NotCompilableError, lower_to_hlo
    try:
        lower_to_hlo(lambda data: tf.strings.as_string(data), tf.TensorSpec((3,)))
    except NotCompilableError as error:
        report(str(error))
    """
    )
    assert "jit_compile=False" in message
