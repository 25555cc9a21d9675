"""Variables made while a function is traced, with and without the conditions that TensorFlow adds for each."""

from memfit.compat.lifted_variables import only_lifted
from memfit.framework import tensorflow
from memfit.trace.function import build_optimizer


def _made(*, with_conditions: bool):
    tf = tensorflow()
    kept = []

    def make():
        if not kept:
            kept.append(tf.Variable(tf.fill([3], 7.0)))
            # A condition of the user's own stays.
            kept.append(tf.cond(tf.constant(True), lambda: 1.0, lambda: 2.0))

    function = tf.function(make, autograph=False)
    if with_conditions:
        function.get_concrete_function()
    else:
        with only_lifted():
            function.get_concrete_function()
    return kept


def test_variables_get_the_same_values():
    with_conditions, without = _made(with_conditions=True), _made(with_conditions=False)
    assert without[0].numpy().tolist() == with_conditions[0].numpy().tolist() == [7.0, 7.0, 7.0]
    assert without[1].op.type == with_conditions[1].op.type


def test_no_conditions_are_traced_for_variables():
    graph = _made(with_conditions=False)[1].graph
    assert [op.type for op in graph.get_operations() if op.type == "VarIsInitializedOp"]
    assert len([op for op in graph.get_operations() if op.type in ("If", "StatelessIf")]) == 1


def test_slots_have_their_first_values():
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adagrad(initial_accumulator_value=0.25), "mse")
    build_optimizer(model)
    slots = [each for each in model.optimizer.variables if "accumulator" in each.path]
    assert slots
    assert all((each.numpy() == 0.25).all() for each in slots)
